package e2e

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// How long a function and a file may be. The aim is 60 and 400.
const (
	longestFunction = 75
	longestFile     = 450
)

func TestSizes(t *testing.T) {
	for _, p := range sources(t) {
		for _, s := range p.files {
			if _, n := s.lines(s.file); n > longestFile {
				t.Errorf("%s has %d lines, more than %d: it is about more than one thing", s.path, n, longestFile)
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.FuncDecl, *ast.FuncLit:
					if at, n := s.length(n); n > longestFunction {
						t.Errorf("%s:%d: the function has %d lines, more than %d", s.path, at, n, longestFunction)
					}
				}
				return true
			})
		}
	}
}

// length is how long a function is. In tests those within it, which are the
// subtests, count by themselves.
func (s source) length(f ast.Node) (at, n int) {
	at, n = s.lines(f)
	if !s.test {
		return at, n
	}
	ast.Inspect(f, func(inner ast.Node) bool {
		lit, ok := inner.(*ast.FuncLit)
		if !ok || lit == f {
			return true
		}
		_, less := s.lines(lit)
		n -= less
		return false
	})
	return at, n
}

// setByTheLinker is the only variable that is not what its source says.
const setByTheLinker = "internal/version.version"

// Nothing happens before main, and a package has no state: what it declares is
// written down once and never changes.
func TestNoHiddenState(t *testing.T) {
	for _, p := range sources(t) {
		declared := map[string]bool{}
		for _, s := range p.code() {
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s: init runs unasked", s.path)
				}
				for _, spec := range variables(d) {
					for _, name := range spec.Names {
						declared[name.Name] = true
					}
					if stateful(spec) && p.path()+"."+spec.Names[0].Name != setByTheLinker && !embedded(d, spec) {
						t.Errorf("%s: the variable %s is state; give it to a type", s.path, spec.Names[0].Name)
					}
				}
			}
		}
		for _, s := range p.code() {
			for _, at := range writes(s.file, declared) {
				t.Errorf("%s: a variable of the package is changed", s.at.Position(at))
			}
		}
	}
}

func variables(d ast.Decl) (all []*ast.ValueSpec) {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return nil
	}
	for _, spec := range g.Specs {
		all = append(all, spec.(*ast.ValueSpec))
	}
	return all
}

// stateful reports whether a variable has no value yet, or one that is made to
// be changed.
func stateful(spec *ast.ValueSpec) (found bool) {
	if len(spec.Values) == 0 {
		return true
	}
	for _, v := range spec.Values {
		ast.Inspect(v, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
					found = true
				}
			}
			_, isFunc := n.(*ast.FuncLit)
			return !isFunc
		})
	}
	return found
}

// embedded reports whether the go command fills in the value.
func embedded(d ast.Decl, spec *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{d.(*ast.GenDecl).Doc, spec.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// writes finds where one of the package's variables is assigned, or a part of
// it. A name that its function declares anywhere is taken for the function's.
func writes(file *ast.File, declared map[string]bool) (all []token.Pos) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		own := locals(f)
		for _, target := range targets(f) {
			if x := root(target); x != nil && declared[x.Name] && !own[x.Name] {
				all = append(all, x.Pos())
			}
		}
	}
	return all
}

// locals are the names that a function declares.
func locals(f *ast.FuncDecl) map[string]bool {
	own := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				own[name.Name] = true
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				own[name.Name] = true
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if x, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					own[x.Name] = true
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if x, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					own[x.Name] = true
				}
			}
		}
		return true
	})
	return own
}

// targets are what a function assigns to.
func targets(f *ast.FuncDecl) (all []ast.Expr) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				all = append(all, n.Lhs...)
			}
		case *ast.IncDecStmt:
			all = append(all, n.X)
		}
		return true
	})
	return all
}

// root is the variable of which an expression is a part.
func root(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.IndexExpr:
		return root(e.X)
	case *ast.SelectorExpr:
		return root(e.X)
	}
	return nil
}

var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b|nolint`)

// What is left to do stands in an issue, and no check is switched off.
func TestNothingUnfinished(t *testing.T) {
	for _, p := range sources(t) {
		for _, s := range p.files {
			for _, group := range s.file.Comments {
				for _, c := range group.List {
					if m := unfinished.FindString(c.Text); m != "" {
						t.Errorf("%s: a comment says %s", s.at.Position(c.Pos()), m)
					}
				}
			}
		}
	}
}

// inBubble reports whether a file's tests run in bubbles that servertest makes.
func inBubble(file *ast.File) (bubble bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		bubble = bubble || ok && sel.Sel.Name == "EachBubble"
		return !bubble
	})
	return bubble
}

// A test that sleeps is slow or wrong. Under fake time sleeping is how time
// passes, and what waits for another process has e2e/kit/wait.
func TestNoSleepingTests(t *testing.T) {
	for _, p := range sources(t) {
		for _, s := range p.files {
			known := s.imports()
			if known["synctest"] != "" || inBubble(s.file) || !s.test && !machinery(p.path()) {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Sleep" {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && known[x.Name] == "time" {
					t.Errorf("%s: it sleeps", s.at.Position(sel.Pos()))
				}
				return true
			})
		}
	}
}
