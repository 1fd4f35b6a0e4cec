package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/beckon-fleet/beckon/e2e/kit/build"
)

const module = "github.com/beckon-fleet/beckon"

// pkg is a package of this repository, as the go command and the parser see it.
type pkg struct {
	ImportPath, Name, Dir                              string
	GoFiles, TestGoFiles, XTestGoFiles, IgnoredGoFiles []string
	Imports, TestImports, XTestImports                 []string
	files                                              []source
}

// source is one Go file.
type source struct {
	path string // below the top folder
	test bool
	file *ast.File
	at   *token.FileSet
}

// path is the package's path below the top folder.
func (p pkg) path() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// code is what is built of the package, without its tests.
func (p pkg) code() []source {
	return slices.DeleteFunc(slices.Clone(p.files), func(s source) bool { return s.test })
}

// packages is all of them, read once for all tests that ask.
var packages = sync.OnceValues(readPackages)

func sources(t *testing.T) []pkg {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readPackages() (all []pkg, err error) {
	out, err := goList("-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
			s := source{path: filepath.Join(p.path(), name), test: strings.HasSuffix(name, "_test.go"), at: token.NewFileSet()}
			if s.file, err = parser.ParseFile(s.at, filepath.Join(p.Dir, name), nil, parser.ParseComments); err != nil {
				return nil, err
			}
			p.files = append(p.files, s)
		}
		all = append(all, p)
	}
}

func goList(args ...string) ([]byte, error) {
	root, err := build.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = errors.New(string(exit.Stderr))
	}
	return out, err
}

// lines says where a piece of source begins and how long it is.
func (s source) lines(n ast.Node) (first, count int) {
	first = s.at.Position(n.Pos()).Line
	return first, s.at.Position(n.End()).Line - first + 1
}

// imports maps the names by which the file knows packages to their paths.
func (s source) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = path
	}
	return names
}
