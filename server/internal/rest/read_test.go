package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
)

type inner struct {
	Size int               `json:"size"`
	Tags map[string]string `json:"tags"`
}

type bodyRequest struct {
	Name  string          `json:"name"`
	Count int             `json:"count"`
	Inner inner           `json:"inner"`
	List  []inner         `json:"list"`
	Any   json.RawMessage `json:"any"`
}

type queryRequest struct {
	ID    string `path:"id" json:"-"`
	Limit int    `query:"limit" json:"-"`
	Word  string `query:"word" json:"-"`
}

var (
	putBody  = api.Endpoint[bodyRequest, struct{}]{Method: "POST", Path: "/body"}
	getQuery = api.Endpoint[queryRequest, struct{}]{Method: "GET", Path: "/things/{id}"}
)

// surface answers both calls and keeps what arrived.
type surface struct {
	*httptest.Server
	body  bodyRequest
	query queryRequest
	calls int
}

func newSurface(t *testing.T, strict bool) *surface {
	s := &surface{}
	r := NewRouter(strict, protocol)
	Problems(r)
	Bind(r, putBody, func(_ context.Context, req bodyRequest) (struct{}, error) {
		s.body = req
		s.calls++
		return struct{}{}, nil
	})
	Bind(r, getQuery, func(_ context.Context, req queryRequest) (struct{}, error) {
		s.query = req
		s.calls++
		return struct{}{}, nil
	})
	s.Server = httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s
}

// send returns the status and the problem of an answer, which must be ours.
func (s *surface) send(t *testing.T, method, target string, body io.Reader, header http.Header) (*http.Response, api.Error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+target, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := s.Client().Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var problem api.Error
	if answer.StatusCode >= 400 {
		if kind := answer.Header.Get("Content-Type"); kind != "application/problem+json" || json.Unmarshal(text, &problem) != nil || problem.Status != answer.StatusCode {
			t.Errorf("%s %s: not one of our problems: %d, %s, %.200s", method, target, answer.StatusCode, kind, text)
		}
	}
	return answer, problem
}

func TestStrictNamesWhatItDoesNotKnow(t *testing.T) {
	strict, lenient := newSurface(t, true), newSurface(t, false)
	for _, c := range []struct{ method, target, body, names string }{
		{"POST", "/body", `{"name": "x", "nmae": "y"}`, `"nmae"`},
		{"POST", "/body", `{"inner": {"siez": 1}}`, `"siez"`},
		{"POST", "/body", `{"list": [{}, {"more": 1}]}`, `"more"`},
		{"POST", "/body?dry_run=1", `{}`, `"dry_run"`},
		{"GET", "/things/1?limit=1&lmit=2", ``, `"lmit"`},
		{"GET", "/things/1?Limit=1", ``, `"Limit"`},
	} {
		answer, problem := strict.send(t, c.method, c.target, strings.NewReader(c.body), nil)
		if answer.StatusCode != 400 || problem.Code != api.Invalid || !strings.Contains(problem.Detail, c.names) {
			t.Errorf("strict, %s %s: %d, %+v", c.target, c.body, answer.StatusCode, problem)
		}
		if answer, problem := lenient.send(t, c.method, c.target, strings.NewReader(c.body), nil); answer.StatusCode != 200 {
			t.Errorf("lenient, %s %s: %d, %+v", c.target, c.body, answer.StatusCode, problem)
		}
	}
	if strict.calls != 0 || lenient.calls != 6 {
		t.Errorf("%d and %d calls were let through", strict.calls, lenient.calls)
	}
}

func TestMembersOfWrongTypesAreNamed(t *testing.T) {
	for _, strict := range []bool{true, false} {
		s := newSurface(t, strict)
		for body, names := range map[string]string{
			`{"count": "seven"}`:                      "count",
			`{"count": 1.5}`:                          "count",
			`{"count": 99999999999999999999999}`:      "count",
			`{"name": {}}`:                            "name",
			`{"inner": {"size": []}}`:                 "inner.size",
			`{"inner": {"tags": {"a": 1}}}`:           "inner.tags",
			`{"list": [{"size": 1}, {"size": true}]}`: "size",
			`{"list": {}}`:                            "list",
		} {
			answer, problem := s.send(t, "POST", "/body", strings.NewReader(body), nil)
			if answer.StatusCode != 400 || !strings.Contains(problem.Detail, names) {
				t.Errorf("%s: %d, %q", body, answer.StatusCode, problem.Detail)
			}
		}
		for target, names := range map[string]string{
			"/things/1?limit=ten": "limit", "/things/1?limit=1e3": "limit", "/things/1?limit=99999999999999999999": "limit",
		} {
			answer, problem := s.send(t, "GET", target, nil, nil)
			if answer.StatusCode != 400 || !strings.Contains(problem.Detail, names) {
				t.Errorf("%s: %d, %q", target, answer.StatusCode, problem.Detail)
			}
		}
		if s.calls != 0 {
			t.Errorf("%d calls were let through", s.calls)
		}
	}
}

func TestBodiesThatAreNoRequest(t *testing.T) {
	deep := func(open, shut string) string { return strings.Repeat(open, 10_000) + strings.Repeat(shut, 10_000) }
	for _, strict := range []bool{true, false} {
		s := newSurface(t, strict)
		for name, body := range map[string]string{
			"two values":       `{} {}`,
			"a comma":          `{},`,
			"a bracket":        `{}]`,
			"rubbish":          `{}x`,
			"an open string":   `{"name": "`,
			"an open object":   `{"name": "x"`,
			"single quotes":    `{'name': 'x'}`,
			"NaN":              `{"count": NaN}`,
			"an array":         `[]`,
			"a string":         `"x"`,
			"a NUL":            "{\"name\": \"a\x00b\"}",
			"a NUL behind":     "{}\x00",
			"deep arrays":      `{"any": ` + deep("[", "]") + `}`,
			"deep objects":     `{"any": ` + deep(`{"a":`, "1")[:50_000] + `}`,
			"deep and cut off": `{"any": ` + strings.Repeat("[", 500_000),
			"only deep":        strings.Repeat("[", 900_000),
		} {
			answer, problem := s.send(t, "POST", "/body", strings.NewReader(body), nil)
			if answer.StatusCode != 400 || problem.Code != api.Invalid {
				t.Errorf("%s: %d, %+v", name, answer.StatusCode, problem)
			}
		}
		for _, body := range []string{"", " \n", "{}", " {} \n", "null"} {
			if answer, problem := s.send(t, "POST", "/body", strings.NewReader(body), nil); answer.StatusCode != 200 {
				t.Errorf("%q: %d, %+v", body, answer.StatusCode, problem)
			}
		}
	}
}

func zipped(t *testing.T, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEncodings(t *testing.T) {
	s := newSurface(t, true)
	good := zipped(t, []byte(`{"name": "zipped"}`))
	fit := zipped(t, []byte(`{"name": "`+strings.Repeat("x", api.MaxBody-12)+`"}`))
	for _, c := range []struct {
		what, encoding string
		body           []byte
		want           int
	}{
		{"gzip", "gzip", good, 200},
		{"in capitals", "GZIP", good, 200},
		{"gzip of the largest body", "gzip", fit, 200},
		{"a byte more", "gzip", zipped(t, []byte(`{"name": "`+strings.Repeat("x", api.MaxBody-11)+`"}`)), 413},
		{"a bomb", "gzip", zipped(t, make([]byte, 16<<20)), 413},
		{"two of them, one after another", "gzip", slices.Concat(zipped(t, make([]byte, 700_000)), zipped(t, make([]byte, 700_000))), 413},
		{"not gzip", "gzip", []byte(`{"name": "x"}`), 400},
		{"nothing", "gzip", nil, 400},
		{"half", "gzip", good[:len(good)/2], 400},
		{"without its sum", "gzip", good[:len(good)-4], 400},
		{"with another sum", "gzip", append(slices.Clone(good[:len(good)-8]), 1, 2, 3, 4, 5, 6, 7, 8), 400},
		{"identity", "identity", []byte(`{"name": "x"}`), 200},
		{"zstd", "zstd", good, 415},
		{"gzip twice", "gzip, gzip", zipped(t, good), 415},
		{"the largest body", "", []byte(`{"name": "` + strings.Repeat("x", api.MaxBody-12) + `"}`), 200},
		{"one byte more", "", []byte(`{"name": "` + strings.Repeat("x", api.MaxBody-11) + `"}`), 413},
	} {
		header := http.Header{}
		if c.encoding != "" {
			header.Set("Content-Encoding", c.encoding)
		}
		answer, problem := s.send(t, "POST", "/body", bytes.NewReader(c.body), header)
		if answer.StatusCode != c.want {
			t.Errorf("%s: want %d, got %d, %+v", c.what, c.want, answer.StatusCode, problem)
		}
		if accepts := answer.Header.Get("Accept-Encoding"); (accepts == "gzip") != (c.want == 415) {
			t.Errorf("%s: Accept-Encoding %q", c.what, accepts)
		}
	}
}

// What PostgreSQL cannot store is refused by name on a strict surface, and
// mended on the other one: an agent must not lose a result for a byte.
func TestTextThatCannotBeStored(t *testing.T) {
	strict, lenient := newSurface(t, true), newSurface(t, false)
	for body, want := range map[string]string{
		`{"name": "a\u0000b"}`:         "a\uFFFDb",
		`{"name": "\u0000\u0000\\"}`:   "\uFFFD\uFFFD\\",
		"{\"name\": \"a\xff\xfeb\"}":   "a\uFFFDb",
		"{\"name\": \"\xed\xa0\x80\"}": "\uFFFD",
	} {
		answer, problem := strict.send(t, "POST", "/body", strings.NewReader(body), nil)
		if answer.StatusCode != 400 || problem.Code != api.Invalid {
			t.Errorf("strict, %q: %d, %+v", body, answer.StatusCode, problem)
		}
		answer, problem = lenient.send(t, "POST", "/body", strings.NewReader(body), nil)
		if answer.StatusCode != 200 || lenient.body.Name != want {
			t.Errorf("lenient, %q: %d, %+v, got %q", body, answer.StatusCode, problem, lenient.body.Name)
		}
	}
	for _, s := range []*surface{strict, lenient} {
		for body, want := range map[string]string{
			`{"name": "\\u0000"}`:              `\u0000`, // the six characters
			`{"name": "\\\\u0000"}`:            `\\u0000`,
			`{"name": "\"u0000 \ud83d\ude00"}`: `"u0000 😀`,
		} {
			if answer, problem := s.send(t, "POST", "/body", strings.NewReader(body), nil); answer.StatusCode != 200 || s.body.Name != want {
				t.Errorf("%s: %d, %+v, got %q", body, answer.StatusCode, problem, s.body.Name)
			}
		}
	}
	answer, _ := lenient.send(t, "POST", "/body", strings.NewReader(`{"any": {"x": ["\u0000", "\\u0000"]}}`), nil)
	if answer.StatusCode != 200 || string(lenient.body.Any) != `{"x": ["\ufffd", "\\u0000"]}` {
		t.Errorf("what is kept as it came: %d, %s", answer.StatusCode, lenient.body.Any)
	}
	calls := strict.calls
	for _, target := range []string{"/things/%00", "/things/a%00b", "/things/%ff", "/things/1?word=%00", "/things/1?word=%c3"} {
		for _, s := range []*surface{strict, lenient} {
			if answer, problem := s.send(t, "GET", target, nil, nil); answer.StatusCode != 400 || problem.Code != api.Invalid {
				t.Errorf("%s: %d, %+v", target, answer.StatusCode, problem)
			}
		}
	}
	if strict.calls != calls {
		t.Error("a malformed parameter was let through")
	}
	if answer, problem := strict.send(t, "GET", "/things/"+strings.Repeat("x", 16<<10), nil, nil); answer.StatusCode != 200 || len(strict.query.ID) != 16<<10 {
		t.Errorf("a long id: %d, %+v", answer.StatusCode, problem)
	}
}

func TestWrongPathsAndMethods(t *testing.T) {
	s := newSurface(t, true)
	for _, c := range []struct {
		method, target string
		want           int
		allow          string
	}{
		{"GET", "/nowhere", 404, ""},
		{"GET", "/things/", 404, ""},
		{"GET", "/things/1/2", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "//", 404, ""},
		{"GET", "/body", 405, "POST"},
		{"DELETE", "/body", 405, "POST"},
		{"POST", "/things/1", 405, "GET"},
		{"TRACE", "/things/1", 405, "GET"},
		{"GET", "/problems/none", 404, ""},
	} {
		answer, _ := s.send(t, c.method, c.target, nil, nil)
		if answer.StatusCode != c.want || answer.Header.Get("Allow") != c.allow || answer.Header.Get(api.HeaderProtocolMax) == "" {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.target, answer.StatusCode, answer.Header.Get("Allow"))
		}
	}
}

// The type of a problem is a reference to what it means.
func TestEveryProblemIsExplained(t *testing.T) {
	s := newSurface(t, true)
	for _, code := range api.Codes() {
		r, err := s.Client().Get(s.URL + api.Errorf(code, "").Type)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") ||
			!strings.HasPrefix(string(text), string(code)+" (") || !strings.Contains(string(text), code.Meaning()) {
			t.Errorf("%s: %d, %s, %v", code, r.StatusCode, text, err)
		}
	}
}

// Each code has the headers that its status asks for.
func TestHeadersOfRefusals(t *testing.T) {
	code := api.Invalid
	r := NewRouter(false, protocol)
	r.Get("/refuse", func(w http.ResponseWriter, q *http.Request) { Fail(w, q, api.Errorf(code, "no")) })
	s := &surface{Server: httptest.NewServer(r)}
	defer s.Close()
	for _, code = range api.Codes() {
		answer, problem := s.send(t, "GET", "/refuse", nil, nil)
		if problem.Code != code || answer.StatusCode != code.Status() || problem.Type != "/problems/"+string(code) || problem.Title == "" {
			t.Errorf("%s: %d, %+v", code, answer.StatusCode, problem)
		}
		for name, wanted := range map[string]bool{
			"WWW-Authenticate": answer.StatusCode == 401,
			"Retry-After":      answer.StatusCode == 429 || answer.StatusCode == 503 || answer.StatusCode == 507,
			"Accept-Encoding":  answer.StatusCode == 415,
			"Upgrade":          false, // it needs to say to what
		} {
			if got := answer.Header.Get(name); (got != "") != wanted {
				t.Errorf("%s: %s is %q", code, name, got)
			}
		}
	}
}
