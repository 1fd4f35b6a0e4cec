package e2e

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// apiSource is what the source of package api says, where its values alone
// cannot tell all there is.
type apiSource struct {
	types   map[string]ast.Expr
	calls   map[string]string   // "POST /agent/v1/join" and the status of its success
	members map[string]string   // "JoinRequest.token" and its type
	values  map[string][]string // of each type of strings
	limits  map[string]string   // numbers and durations
}

func parseAPI(t *testing.T) apiSource {
	t.Helper()
	s := apiSource{map[string]ast.Expr{}, map[string]string{}, map[string]string{}, map[string][]string{}, map[string]string{}}
	paths, err := filepath.Glob("../api/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				s.types[spec.Name.Name] = spec.Type
			}
			return true
		})
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				s.readType(n)
			case *ast.ValueSpec:
				s.readConst(n)
			case *ast.CompositeLit:
				s.readCall(t, n)
			}
			return true
		})
	}
	return s
}

// readCall takes an Endpoint[…]{…} or a Raw{…} apart.
func (s apiSource) readCall(t *testing.T, literal *ast.CompositeLit) {
	kind := literal.Type
	if generic, ok := kind.(*ast.IndexListExpr); ok {
		kind = generic.X
	}
	if name, ok := kind.(*ast.Ident); !ok || name.Name != "Endpoint" && name.Name != "Raw" {
		return
	}
	method, path, status := "", "", http.StatusOK
	for _, element := range literal.Elts {
		pair := element.(*ast.KeyValueExpr)
		switch pair.Key.(*ast.Ident).Name {
		case "Method":
			method = strings.ToUpper(strings.TrimPrefix(pair.Value.(*ast.SelectorExpr).Sel.Name, "Method"))
		case "Path":
			path = unquoted(pair.Value)
		case "Status":
			if name := pair.Value.(*ast.SelectorExpr).Sel.Name; name != "StatusCreated" {
				t.Fatalf("%s %s: this test does not know http.%s", method, path, name)
			}
			status = http.StatusCreated
		}
	}
	s.calls[method+" "+path] = strconv.Itoa(status)
}

// readType collects the members of a struct that travel outside of the path.
func (s apiSource) readType(spec *ast.TypeSpec) {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag := reflect.StructTag(unquoted(field.Tag))
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		_, pointer := field.Type.(*ast.StarExpr)
		said, absent := s.typeName(field.Type), options != "" || pointer
		for _, place := range []string{"query", "header"} {
			if outside, ok := tag.Lookup(place); ok {
				name, absent = outside, true
				said = map[string]string{"query": said, "header": "string"}[place] + ", " + place
			}
		}
		if name == "-" {
			continue
		}
		if absent {
			said += ", may be absent"
		}
		s.members[spec.Name.Name+"."+name] = said
	}
}

// typeName is a type in the words of the document.
func (s apiSource) typeName(e ast.Expr) string {
	words := map[string]string{
		"string": "string", "bool": "boolean", "int": "integer", "int64": "integer", "float64": "number",
		"Time": "time", "RawMessage": "any",
	}
	switch e := e.(type) {
	case *ast.Ident:
		if word, ok := words[e.Name]; ok {
			return word
		}
		if under, ok := s.types[e.Name].(*ast.Ident); ok {
			return words[under.Name]
		}
		return e.Name
	case *ast.SelectorExpr:
		return words[e.Sel.Name]
	case *ast.StarExpr:
		return s.typeName(e.X)
	case *ast.MapType:
		return "object of " + s.typeName(e.Value)
	case *ast.ArrayType:
		switch element := s.typeName(e.Elt); element {
		case "byte":
			return "base64"
		case "any":
			return "list of CommandItem" // the only items that are decoded one by one
		default:
			return "list of " + element
		}
	}
	return "a type that this test does not know"
}

func (s apiSource) readConst(spec *ast.ValueSpec) {
	if len(spec.Names) != 1 || len(spec.Values) != 1 {
		return
	}
	typed, _ := spec.Type.(*ast.Ident)
	if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
		if typed != nil {
			s.values[typed.Name] = append(s.values[typed.Name], unquoted(literal))
		}
		return
	}
	value, timed := evaluate(spec.Values[0])
	number, exact := constant.Int64Val(value)
	switch {
	case !exact:
	case timed:
		s.limits[spec.Names[0].Name] = time.Duration(number).String()
	case typed != nil && typed.Name == "Wait":
		s.limits[spec.Names[0].Name] = (time.Duration(number) * time.Second).String()
	default:
		s.limits[spec.Names[0].Name] = strconv.FormatInt(number, 10)
	}
}

var durations = map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}

// evaluate works out a constant of numbers and durations.
func evaluate(e ast.Expr) (value constant.Value, timed bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), false
	case *ast.SelectorExpr:
		return constant.MakeInt64(int64(durations[e.Sel.Name])), true
	case *ast.BinaryExpr:
		x, timedX := evaluate(e.X)
		y, timedY := evaluate(e.Y)
		if e.Op == token.SHL {
			bits, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(bits)), false
		}
		return constant.BinaryOp(x, e.Op, y), timedX || timedY
	}
	return constant.MakeUnknown(), false
}

func unquoted(e ast.Expr) string {
	text, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	if err != nil {
		return ""
	}
	return text
}
