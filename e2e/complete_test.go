package e2e

import (
	"cmp"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/build"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
)

// What must be complete is checked by a test that names what is missing.

// declared is a variable of package api that says a call or a kind.
type declared struct {
	name  string // of the variable
	what  string // Endpoint, Raw or Kind
	takes string // the type of its request or payload
	path  string // of a call
	kind  string // of a command
}

// declarations finds them by the source: a list could forget one.
func declarations(t *testing.T) (all []declared) {
	t.Helper()
	for _, s := range folder(t, "api").code() {
		for _, d := range s.file.Decls {
			for _, spec := range variables(d) {
				for i, v := range spec.Values {
					if lit, ok := v.(*ast.CompositeLit); ok {
						if one := declaration(lit); one.what != "" {
							one.name = spec.Names[i].Name
							all = append(all, one)
						}
					}
				}
			}
		}
	}
	if len(all) < 30 {
		t.Fatalf("package api seems to declare %d calls and kinds: this test no longer understands it", len(all))
	}
	return all
}

func declaration(lit *ast.CompositeLit) (d declared) {
	of := lit.Type
	switch generic := of.(type) {
	case *ast.IndexListExpr:
		of = generic.X
		if x, ok := generic.Indices[0].(*ast.Ident); ok {
			d.takes = x.Name
		}
	case *ast.IndexExpr:
		of = generic.X
	}
	if x, ok := of.(*ast.Ident); ok && slices.Contains([]string{"Endpoint", "Raw", "Kind"}, x.Name) {
		d.what = x.Name
	}
	for _, e := range lit.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := pair.Key.(*ast.Ident)
		value, literal := pair.Value.(*ast.BasicLit)
		switch {
		case !ok || !literal:
		case key.Name == "Path":
			d.path = strings.Trim(value.Value, `"`)
		case key.Name == "name":
			d.kind = strings.Trim(value.Value, `"`)
		}
	}
	return d
}

func folder(t *testing.T, path string) pkg {
	t.Helper()
	for _, p := range sources(t) {
		if p.path() == path {
			return p
		}
	}
	t.Fatalf("there is no package %s", path)
	return pkg{}
}

// bound lists the variables of package api that a file hands to a function of
// another package: rest.Bind(r, api.Join, …) binds Join.
func bound(t *testing.T, path string, functions ...string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, s := range folder(t, filepath.Dir(path)).files {
		if s.path != path {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !slices.Contains(functions, name(call.Fun)) {
				return true
			}
			for _, arg := range call.Args {
				if variable, ok := strings.CutPrefix(name(arg), "api."); ok {
					found[variable] = true
				}
			}
			return true
		})
	}
	return found
}

// name is "x.y" of such an expression, also where it is a generic one.
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IndexExpr:
		return name(e.X)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// A call has a route, a place in the list of its surface, and a test; a kind
// has a handler, a place in the list of kinds, and a test; PROTOCOL.md knows
// both.
func TestComplete(t *testing.T) {
	routes := bound(t, "server/routes.go", "rest.Bind", "rest.Raw")
	handlers := bound(t, "agent/handlers.go", "dispatch.On")
	listed := surface()
	protocol, tests, transcripts := read(t, []string{"PROTOCOL.md"}), testText(t), read(t, transcriptFiles(t))
	for _, d := range declarations(t) {
		has := func(found bool, missing string) {
			if !found {
				t.Errorf("api.%s (%s%s) has no %s", d.name, d.path, d.kind, missing)
			}
		}
		has(mentioned(tests, d), "test that mentions it")
		if d.what == "Kind" {
			_, err := api.KindNamed(d.kind)
			has(err == nil, "place in api.Kinds")
			has(handlers[d.name], "handler in agent/handlers.go")
			has(strings.Contains(protocol, "`"+d.kind+"`"), "row in PROTOCOL.md")
			has(strings.Contains(transcripts, "--kind "+d.kind) || verbOf[d.kind] != "" && strings.Contains(transcripts, verbOf[d.kind]), "transcript in e2e/testdata")
			continue
		}
		has(routes[d.name], "route in server/routes.go")
		has(listed[d.path], "place in api.AgentSurface or api.OperatorSurface")
		has(strings.Contains(protocol, d.path), "mention in PROTOCOL.md")
	}
}

// mentioned reports whether a test names a call or kind: the variable, the
// type of its request, or its path.
func mentioned(tests string, d declared) bool {
	names := regexp.MustCompile(`\bapi\.(` + d.name + `|` + cmp.Or(d.takes, d.name) + `)\b`)
	return names.MatchString(tests) || d.path != "" && strings.Contains(tests, d.path)
}

// verbOf is how an operator causes a kind of command without naming it.
var verbOf = map[string]string{
	"deploy":  "exec beckon deploy ",
	"restart": "exec beckon app restart ",
	"stop":    "exec beckon app stop ",
	"remove":  "exec beckon app remove ",
}

func surface() map[string]bool {
	paths := map[string]bool{}
	for _, c := range slices.Concat(api.AgentSurface, api.OperatorSurface) {
		paths[c.Describe().Path] = true
	}
	return paths
}

// testText is all tests and transcripts.
func testText(t *testing.T) string {
	t.Helper()
	files := transcriptFiles(t)
	for _, p := range sources(t) {
		for _, s := range p.files {
			if s.test {
				files = append(files, s.path)
			}
		}
	}
	return read(t, files)
}

func transcriptFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for i := range files {
		files[i] = filepath.Join("e2e", files[i])
	}
	return files
}

// read is the text of files below the top folder, one after the other.
func read(t *testing.T, files []string) string {
	t.Helper()
	root, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Each verb that the programs' own help names has a transcript.
func TestVerbsHaveTranscripts(t *testing.T) {
	t.Parallel()
	transcripts := read(t, transcriptFiles(t))
	for _, program := range []string{"beckon", "beckon-agent"} {
		all := verbs(t, program)
		if len(all) < 3 {
			t.Errorf("%s seems to have the verbs %v only: this test no longer understands its help", program, all)
		}
		for _, verb := range all {
			if !regexp.MustCompile(`(?m)\b` + verb + `( |$)`).MatchString(transcripts) {
				t.Errorf("%s has no transcript in e2e/testdata", verb)
			}
		}
	}
}

// verbs are the command lines that do something.
func verbs(t *testing.T, words ...string) (all []string) {
	t.Helper()
	help := exec.Command(filepath.Join(programs.Dir(t), words[0]), append(slices.Clone(words[1:]), "--help")...)
	help.Env = proc.Environ()
	text, err := help.Output()
	if err != nil {
		t.Fatalf("%v --help: %v", words, err)
	}
	line := strings.Join(words, " ")
	if !strings.Contains(string(text), "Usage: "+line+" COMMAND ") {
		all = append(all, line)
	}
	_, rest, _ := strings.Cut(string(text), "\nCommands:\n")
	rest, _, _ = strings.Cut(rest, "\n\n")
	for row := range strings.Lines(rest) {
		all = append(all, verbs(t, append(slices.Clone(words), strings.Fields(row)[0])...)...)
	}
	return all
}

// A program is killed at each point that it names.
func TestCrashPointsAreTried(t *testing.T) {
	var points []death
	for _, p := range sources(t) {
		program, _, _ := strings.Cut(p.path(), "/")
		for _, s := range p.code() {
			ast.Inspect(s.file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || name(call.Fun) != "fault.At" {
					return true
				}
				if point, ok := call.Args[0].(*ast.BasicLit); ok {
					points = append(points, death{program, strings.Trim(point.Value, `"`)})
				}
				return true
			})
		}
	}
	for _, d := range points {
		if !slices.Contains(deaths, d) {
			t.Errorf("nobody kills the %s at %q (kill_test.go)", d.program, d.point)
		}
	}
	for _, d := range deaths {
		if !slices.Contains(points, d) {
			t.Errorf("the %s has no point %q to be killed at", d.program, d.point)
		}
	}
}

// Who reads the public packages finds a sentence at each name.
func TestPublicNamesAreExplained(t *testing.T) {
	for _, path := range []string{"api", "api/client", "api/seal", "server", "agent"} {
		p := folder(t, path)
		explained := false
		for _, s := range p.code() {
			explained = explained || s.file.Doc != nil
			for _, d := range s.file.Decls {
				for _, name := range unexplained(d) {
					t.Errorf("%s: %s has no doc comment", s.path, name)
				}
			}
		}
		if !explained {
			t.Errorf("package %s has no doc comment", path)
		}
	}
}

// unexplained lists the exported names of a declaration that nothing explains.
// A comment on a group of constants or variables is one for all of them, and
// String and Error need none.
func unexplained(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		known := d.Name.Name == "String" || d.Name.Name == "Error" || d.Name.Name == "Unwrap"
		if d.Doc == nil && d.Name.IsExported() && receiverExported(d) && !(known && d.Recv != nil) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			var doc, beside *ast.CommentGroup
			var of []*ast.Ident
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				doc, beside, of = spec.Doc, spec.Comment, []*ast.Ident{spec.Name}
			case *ast.ValueSpec:
				doc, beside, of = spec.Doc, spec.Comment, spec.Names
			}
			for _, name := range of {
				if name.IsExported() && doc == nil && beside == nil && d.Doc == nil {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func receiverExported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return reflect.ValueOf(t).IsZero()
		}
	}
}
