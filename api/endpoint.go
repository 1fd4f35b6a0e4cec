// Package api is the contract: every type, path, header and code that crosses
// the wire, and nothing else. It imports the standard library only.
//
// The OpenAPI documents are made from it (`make generate`): from the types, the
// comments, and tags like limit:"1..32", which bound a number or the length of
// what has one. Validate holds what a tag says.
package api

import (
	"crypto/sha256"
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Endpoint is a call the server answers. The server binds it to a method,
// every client calls it; neither spells the path.
type Endpoint[Req, Res any] struct {
	Method string
	Path   string   // "{id}" is filled from the field of Req tagged `path:"id"`
	Status int      // of success; 0 is 200. An answer with HTTPStatus overrides it,
	Also   []int    // with one of these
	As     []string // content types that a caller may accept instead of JSON
	Open   bool     // needs no credentials
	Frozen bool     // answers agents of every protocol
	Fails  []Code   // beside what every such call may answer, see Description.Codes
}

// A Raw is a call whose body or answer is no JSON document: a stream, a file.
type Raw struct {
	Method      string
	Path        string
	Status      int    // of success; 0 is 200
	Also        []int  // the other statuses of success
	Params      any    // zero value of the struct that holds its parameters; nil for those of its path alone
	Takes       string // content type of the request's body; "" for none
	ContentType string // of success
	Answer      any    // zero value of what success holds, where that is JSON
	Ranges      bool   // serves parts of what it answers (RFC 9110): 206, 304 and 416
	Open        bool   // needs no credentials
	Fails       []Code // beside what every such call may answer
}

// HasBody reports whether a request of this method carries one.
func (e Endpoint[Req, Res]) HasBody() bool {
	return e.Method != http.MethodGet && e.Method != http.MethodDelete
}

// Cursor is what the request of every list embeds.
type Cursor struct {
	Limit int    `query:"limit" json:"-"` // items of a page: 50 unless said, at most 200
	After string `query:"after" json:"-"` // the next of the page before
}

// Page is the answer of every list.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // what to ask for next; absent on the last page
}

// PageLimit is the limit that a request asked for, bounded; 50 unless said.
func (c Cursor) PageLimit() int {
	if c.Limit <= 0 {
		return 50
	}
	return min(c.Limit, MaxPage)
}

// Write is what every request of an operator that changes something embeds. A
// repeat with the same Key and body within 24 h gets the first one's answer.
type Write struct {
	Key  string `header:"Idempotency-Key" json:"-" limit:"..255"` // a name for the request
	Wait Wait   `header:"Prefer" json:"-"`                        // as wait=30: seconds to wait for the outcome, at most 60
}

// Duration is the wait.
func (w Wait) Duration() time.Duration { return time.Duration(w) * time.Second }

// Wait is how many seconds a caller would wait for the outcome. It travels as
// "Prefer: wait=30"; preferences we do not know are ignored (RFC 7240).
type Wait int

// MaxWait bounds a Wait: proxies close connections that are silent for longer.
const MaxWait Wait = 60

// MarshalText writes the preference.
func (w Wait) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "wait=%d", w), nil }

// UnmarshalText reads the header, and bounds the wait.
func (w *Wait) UnmarshalText(text []byte) error {
	for preference := range strings.SplitSeq(string(text), ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(preference), "wait=")
		if !ok {
			continue
		}
		seconds, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("read wait: %w", err)
		}
		*w = min(Wait(seconds), MaxWait)
	}
	return nil
}

// Encode returns what of req travels outside the body: its place in the path,
// the query and the headers.
func (e Endpoint[Req, Res]) Encode(req Req) (target string, header http.Header) {
	path, query, header := e.Path, url.Values{}, http.Header{}
	eachParam(reflect.ValueOf(&req).Elem(), func(in, name string, field reflect.Value) error {
		switch {
		case in == "path":
			path = strings.Replace(path, "{"+name+"}", url.PathEscape(format(field)), 1)
		case field.IsZero(): // absent and zero are the same in a query
		case in == "query":
			query.Set(name, format(field))
		case in == "header":
			header.Set(name, format(field))
		}
		return nil
	})
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, header
}

// Decode fills the fields of req that travel outside the body from get, which
// is given "path", "query" or "header" and a name.
func Decode(req any, get func(in, name string) (string, error)) error {
	return eachParam(reflect.ValueOf(req).Elem(), func(in, name string, field reflect.Value) error {
		s, err := get(in, name)
		if err != nil || s != "" && parse(field, s) != nil {
			return Errorf(Invalid, "the %s parameter %q is malformed", in, name)
		}
		return nil
	})
}

// CheckParams panics when a parameter of e has a type that cannot travel, so
// that the mistake shows at start and not at the first request.
func (e Endpoint[Req, Res]) CheckParams() {
	eachParam(reflect.New(reflect.TypeFor[Req]()).Elem(), func(in, name string, field reflect.Value) error {
		if _, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return nil
		}
		switch field.Kind() {
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
			return nil
		}
		panic(fmt.Sprintf("api: %s %s: the %s parameter %q is a %s", e.Method, e.Path, in, name, field.Type()))
	})
}

// eachParam visits the tagged fields of a struct, embedded ones included.
func eachParam(v reflect.Value, do func(in, name string, field reflect.Value) error) error {
	for i := range v.NumField() {
		field, decl := v.Field(i), v.Type().Field(i)
		if decl.Anonymous && field.Kind() == reflect.Struct {
			if err := eachParam(field, do); err != nil {
				return err
			}
			continue
		}
		for _, in := range [...]string{"path", "query", "header"} {
			name, ok := decl.Tag.Lookup(in)
			if !ok {
				continue
			}
			if err := do(in, name, field); err != nil {
				return err
			}
		}
	}
	return nil
}

func format(field reflect.Value) string {
	if m, ok := field.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return "" // the server then says which parameter is missing
		}
		return string(text)
	}
	return fmt.Sprint(field.Interface())
}

func parse(field reflect.Value, s string) error {
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	switch field.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		field.SetBool(b)
		return err
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, field.Type().Bits())
		field.SetInt(n)
		return err
	}
	field.SetString(s)
	return nil
}

// etag is a strong ETag of the content of v.
func etag(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // no document of ours holds what JSON cannot
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf(`"%x"`, sum[:8])
}

// QueryParams names the query parameters of e.
func (e Endpoint[Req, Res]) QueryParams() []string { return queryParams(reflect.TypeFor[Req]()) }

// QueryParams names the query parameters of r.
func (r Raw) QueryParams() []string {
	if r.Params == nil {
		return nil
	}
	return queryParams(reflect.TypeOf(r.Params))
}

func queryParams(of reflect.Type) (names []string) {
	eachParam(reflect.New(of).Elem(), func(in, name string, _ reflect.Value) error {
		if in == "query" {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// oneOf refuses a word that is none of the known ones; none at all is fine.
func oneOf[S ~string](name string, word S, known ...S) error {
	if word == "" || slices.Contains(known, word) {
		return nil
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	return Errorf(Invalid, "%s must be one of %s, not %q", name, strings.Join(words, ", "), word)
}
