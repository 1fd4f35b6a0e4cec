package e2e

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// The layers of the two programs, the lowest first. A package may import those
// on the lines above its own; what is not named has no place yet.
var (
	serverLayers = [][]string{
		{"schema"},
		{"server/internal/store"},
		{"server/internal/event", "server/internal/audit"},
		{"server/internal/auth", "server/internal/pki", "server/internal/nudge", "server/internal/once", "server/internal/file"},
		{"server/internal/node", "server/internal/command"},
		nouns("server/internal"),
		{"server/internal/console"},
		{"server"},
		{"server/cmd/beckon"},
	}
	agentLayers = [][]string{
		{"agent/internal/archive", "agent/internal/docker", "agent/internal/process", "agent/internal/caddy", "agent/internal/probe", "agent/internal/link", "agent/internal/journal", "agent/internal/state"},
		{"agent/internal/dispatch", "agent/internal/file"},
		nouns("agent/internal"),
		{"agent"},
		{"agent/cmd/beckon-agent"},
	}
)

// nouns are what operators speak of. They do not know each other.
func nouns(in string) (all []string) {
	for _, noun := range []string{"app", "access", "secret", "database", "mesh", "upgrade", "route", "traffic", "log"} {
		all = append(all, in+"/"+noun)
	}
	return all
}

// knowing are the exceptions: who knows whom on its own line, and why.
var knowing = map[string]string{
	"server/internal/command server/internal/node": "a command is for a node: whether that is active, and what it allows, is asked in the same transaction",
}

// shared is what any box may import, and who else may import something.
var shared = map[string][]string{
	"api":              {"*"},
	"api/seal":         {"*"},
	"api/client":       {"agent", "agent/internal/link", "internal/cli", "server/cmd/beckon", "agent/cmd/beckon-agent"},
	"internal/durable": {"*"},
	"internal/version": {"*"},
	"internal/fault":   {"*"},
	"internal/cli":     {"server/cmd/beckon", "agent/cmd/beckon-agent"},
	// What stands between HTTP and the services knows none of them.
	"server/internal/rest": {"server"},
	"server/internal/once": {"server/internal/rest"},
}

// foreign says which packages import a module that is not ours: one of ours
// stands before each, so that another can take its place.
var foreign = map[string][]string{
	"github.com/go-chi/chi/v5":          {"server/internal/rest", "server"},
	"github.com/r3labs/sse/v2":          {"server/internal/nudge", "agent/internal/link"},
	"gopkg.in/cenkalti/backoff.v1":      {"agent/internal/link"}, // sse's own, to switch it off
	"github.com/google/uuid":            {"server/internal/store"},
	"github.com/jackc/pgx/v5":           {"server/internal/store"},
	"modernc.org/sqlite":                {"server/internal/store", "e2e/bench"}, // bench measures what we add to it
	"github.com/urfave/cli/v2":          {"internal/cli", "server/cmd/beckon", "agent/cmd/beckon-agent"},
	"go.etcd.io/bbolt":                  {"agent/internal/journal", "e2e/bench"},
	"github.com/moby/moby":              {"agent/internal/docker"},
	"github.com/containerd/errdefs":     {"agent/internal/docker"}, // the client's errors
	"github.com/distribution/reference": {"agent/internal/docker"}, // the client's names of images
	"golang.org/x/sys":                  {"agent/internal/probe", "agent/internal/process"},
	"github.com/getkin/kin-openapi":     {"e2e/kit/contract"},
	"github.com/rogpeppe/go-internal":   {"e2e"},
	"github.com/tmaxmax/go-sse":         {"e2e"}, // an independent reader of our streams
	"pgregory.net/rapid":                {"*"},   // in tests
	"go.uber.org/goleak":                {"*"},   // in tests
}

// onlyInTests are modules that no program links.
var onlyInTests = []string{"pgregory.net/rapid", "go.uber.org/goleak", "github.com/rogpeppe/go-internal", "github.com/getkin/kin-openapi", "github.com/tmaxmax/go-sse"}

func TestImports(t *testing.T) {
	for _, p := range sources(t) {
		for _, to := range p.Imports {
			if to, ours := strings.CutPrefix(to, module+"/"); ours && !mayImport(p.path(), to) {
				t.Errorf("%s imports %s: section 3 of the design forbids it, or has no place for one of them (arch_test.go)", p.path(), to)
			}
		}
	}
	for pair, reason := range knowing {
		from, to, _ := strings.Cut(pair, " ")
		if !imports(sources(t), from, to) {
			t.Errorf("%s no longer imports %s: take the exception away (%s)", from, to, reason)
		}
	}
}

// mayImport is the rule, for packages of ours.
func mayImport(from, to string) bool {
	top, _, _ := strings.Cut(from, "/")
	switch {
	case from == "api" || from == "schema": // they stand by themselves
		return false
	case slices.Contains(shared[to], "*") || slices.Contains(shared[to], from):
		return true
	case machinery(to):
		return machinery(from)
	case machinery(from):
		return below(from) == "" || strings.HasPrefix(to, below(from))
	case top == "api" || top == "schema" || top == "scripts" || top == "internal":
		return false
	case knowing[from+" "+to] != "":
		return true
	}
	return lower(serverLayers, from, to) || lower(agentLayers, from, to)
}

// machinery is what only tests use.
func machinery(p string) bool {
	return p == "e2e" || strings.HasPrefix(p, "e2e/") || strings.HasSuffix(p, "test") && strings.Contains(p, "/")
}

// below is what a test's helper may import: what its folder may. e2e may
// import all that the compiler lets it.
func below(p string) string {
	if strings.HasPrefix(p, "e2e") {
		return ""
	}
	top, _, _ := strings.Cut(p, "/")
	return top + "/"
}

func lower(layers [][]string, from, to string) bool {
	at := func(p string) int {
		return slices.IndexFunc(layers, func(line []string) bool { return slices.Contains(line, p) })
	}
	return at(to) >= 0 && at(to) < at(from)
}

func imports(all []pkg, from, to string) bool {
	return slices.ContainsFunc(all, func(p pkg) bool { return p.path() == from && slices.Contains(p.Imports, module+"/"+to) })
}

// Another router, database or engine must be a change in one place.
func TestForeignImports(t *testing.T) {
	for _, p := range sources(t) {
		for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			m, ok := moduleOf(to)
			if standard(to) || strings.HasPrefix(to, module) {
				continue
			}
			if !ok || !slices.Contains(foreign[m], "*") && !slices.Contains(foreign[m], p.path()) {
				t.Errorf("%s imports %s, which only %v may (arch_test.go)", p.path(), to, foreign[m])
			}
			if slices.Contains(p.Imports, to) && slices.Contains(onlyInTests, m) && !machinery(p.path()) {
				t.Errorf("%s links %s, which is for tests", p.path(), to)
			}
		}
		if p.path() == "api" {
			for _, to := range p.Imports {
				if !standard(to) {
					t.Errorf("api imports %s: it imports the standard library only", to)
				}
			}
		}
	}
}

// standard reports whether a package is Go's own.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func moduleOf(importPath string) (string, bool) {
	for m := range foreign {
		if importPath == m || strings.HasPrefix(importPath, m+"/") {
			return m, true
		}
	}
	return "", false
}

// Types of others stay with the package that imports them.
func TestForeignTypesStayInside(t *testing.T) {
	for _, p := range sources(t) {
		for _, s := range p.code() {
			known := s.imports()
			for _, d := range s.file.Decls {
				for _, e := range exposed(d) {
					ast.Inspect(e, func(n ast.Node) bool {
						sel, ok := n.(*ast.SelectorExpr)
						if !ok {
							return true
						}
						x, ok := sel.X.(*ast.Ident)
						if !ok {
							return true
						}
						if m, ok := moduleOf(known[x.Name]); ok && slices.Equal(users(m), []string{p.path()}) {
							t.Errorf("%s: %s.%s is in what the package exports", s.path, x.Name, sel.Sel.Name)
						}
						return true
					})
				}
			}
		}
	}
}

// users are the packages that import a module, those for tests left out.
func users(m string) []string { return slices.DeleteFunc(slices.Clone(foreign[m]), machinery) }

// exposed is what of a declaration other packages see.
func exposed(d ast.Decl) (all []ast.Node) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() {
			all = append(all, d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					all = append(all, exportedFields(spec.Type)...)
				}
			case *ast.ValueSpec:
				if spec.Names[0].IsExported() && spec.Type != nil {
					all = append(all, spec.Type)
				}
			}
		}
	}
	return all
}

func exportedFields(e ast.Expr) (all []ast.Node) {
	s, ok := e.(*ast.StructType)
	if !ok {
		return []ast.Node{e}
	}
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 || f.Names[0].IsExported() {
			all = append(all, f.Type)
		}
	}
	return all
}

// The agent goes onto small machines of other people: it links no database
// and no router. The server links no engine.
func TestLinks(t *testing.T) {
	for program, unwanted := range map[string][]string{
		"agent/cmd/beckon-agent": {"modernc.org/sqlite", "github.com/jackc/pgx", "github.com/go-chi/chi", module + "/server"},
		"server/cmd/beckon":      {"go.etcd.io/bbolt", "github.com/moby/moby", module + "/agent"},
	} {
		out, err := goList("-deps", "./"+program)
		if err != nil {
			t.Fatal(err)
		}
		for linked := range strings.Lines(string(out)) {
			for _, prefix := range unwanted {
				if strings.HasPrefix(linked, prefix) {
					t.Errorf("%s links %s", program, strings.TrimSpace(linked))
				}
			}
		}
	}
}

// What both sides need and is not wire is little, and stays so.
func TestPackageNames(t *testing.T) {
	inner := []string{"internal/cli", "internal/durable", "internal/durable/durabletest", "internal/fault", "internal/version"}
	unwanted := []string{"util", "utils", "common", "helper", "helpers", "type", "types", "model", "models", "misc", "base", "shared"}
	top := map[string]bool{}
	for _, p := range sources(t) {
		if strings.HasPrefix(p.path(), "internal/") && !slices.Contains(inner, p.path()) {
			t.Errorf("%s: internal/ is for %v only", p.path(), inner)
		}
		name := path.Base(p.path())
		if slices.Contains(unwanted, name) || name != strings.ToLower(name) || strings.HasSuffix(name, "manager") || strings.HasSuffix(name, "impl") {
			t.Errorf("%s: a package has the name of what it is about, in a word that a user would say", p.path())
		}
		first, _, _ := strings.Cut(p.path(), "/")
		top[first] = true
	}
	if got, want := slices.Sorted(maps.Keys(top)), []string{"agent", "api", "e2e", "internal", "schema", "scripts", "server"}; !slices.Equal(got, want) {
		t.Errorf("the top folders with Go in them are %v, want %v", got, want)
	}
}
