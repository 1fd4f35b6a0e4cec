package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// source is what only the text of package api says: names and comments.
type source struct {
	calls  map[string]named   // by "POST /agent/v1/join"
	types  map[string]string  // comments, by the type's name
	fields map[string]string  // comments, by "Type.Field"
	values map[string][]value // of each type of strings, in order
}

// named is a variable and its comment.
type named struct{ name, comment string }

// value is a constant of a closed set.
type value struct{ text, comment string }

func readSource(folder string) (*source, error) {
	s := &source{map[string]named{}, map[string]string{}, map[string]string{}, map[string][]value{}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no Go files in %s; run it in the root of the repository", folder)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read source: %w", err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.readDeclaration(g)
			}
		}
	}
	return s, nil
}

func (s *source) readDeclaration(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.readType(spec, comment(spec.Doc, g.Doc))
		case *ast.ValueSpec:
			if g.Tok == token.VAR {
				s.readCall(spec, comment(spec.Doc, g.Doc))
			} else {
				s.readValue(spec)
			}
		}
	}
}

func (s *source) readType(spec *ast.TypeSpec, text string) {
	s.types[spec.Name.Name] = text
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range structure.Fields.List {
		for _, name := range f.Names {
			s.fields[spec.Name.Name+"."+name.Name] = comment(f.Comment, f.Doc)
		}
	}
}

// readCall takes `var Join = Endpoint[…]{Method: http.MethodPost, Path: "…"}`.
func (s *source) readCall(spec *ast.ValueSpec, text string) {
	for i, v := range spec.Values {
		literal, ok := v.(*ast.CompositeLit)
		if !ok {
			continue
		}
		method, path := "", ""
		for _, e := range literal.Elts {
			pair, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key, _ := pair.Key.(*ast.Ident); {
			case key == nil:
			case key.Name == "Method":
				method = methodOf(pair.Value)
			case key.Name == "Path":
				path = unquote(pair.Value)
			}
		}
		s.calls[method+" "+path] = named{spec.Names[i].Name, text}
	}
}

// methodOf is POST for http.MethodPost.
func methodOf(e ast.Expr) string {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		return strings.ToUpper(strings.TrimPrefix(selector.Sel.Name, "Method"))
	}
	return unquote(e)
}

// readValue takes `StatusActive NodeStatus = "active" // comment`.
func (s *source) readValue(spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Values) != 1 {
		return
	}
	if text := unquote(spec.Values[0]); text != "" {
		s.values[kind.Name] = append(s.values[kind.Name], value{text, comment(spec.Comment, spec.Doc)})
	}
}

func unquote(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
}

// comment is the text of the first group there is, a line for each paragraph.
func comment(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if text := strings.TrimSpace(g.Text()); text != "" {
			paragraphs := strings.Split(text, "\n\n")
			for i, p := range paragraphs {
				paragraphs[i] = strings.Join(strings.Fields(p), " ")
			}
			return strings.Join(paragraphs, "\n\n")
		}
	}
	return ""
}

var reference = regexp.MustCompile(` \(PROTOCOL\.md [^)]*\)`)

// sentence is the first sentence of a comment, without the name it begins with:
// "Join makes a node of a machine (PROTOCOL.md section 2)." makes
// "Makes a node of a machine".
func sentence(name, text string) string {
	first := phrase(name, text)
	return strings.ToUpper(first[:min(1, len(first))]) + first[min(1, len(first)):]
}

// phrase is a sentence to be used within another one.
func phrase(name, text string) string {
	first, _, _ := strings.Cut(reference.ReplaceAllString(text, "")+" ", ". ")
	first = strings.TrimSuffix(strings.TrimSpace(strings.Split(first, "\n")[0]), ".")
	for _, lead := range []string{"A ", "An ", name + " ", "is ", "are "} {
		first = strings.TrimPrefix(first, lead)
	}
	return first
}
