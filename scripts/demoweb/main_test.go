package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPageSaysWhatIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		env    map[string]string
		want   []string
		absent []string
	}{
		"all":       {map[string]string{"NODE": "web-1", "APP": "hello", "REVISION": "3"}, []string{"hello runs", "<dd>web-1</dd>", "<dd>3</dd>"}, nil},
		"nothing":   {nil, []string{"demoweb runs", "Started"}, []string{"Node", "Revision", "<dd></dd>"}},
		"no markup": {map[string]string{"APP": "<b>x</b>"}, []string{"&lt;b&gt;x"}, []string{"<b>"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := get(t, handler(func(key string) string { return test.env[key] }), "/", http.StatusOK)
			for _, s := range test.want {
				if !strings.Contains(body, s) {
					t.Errorf("the page lacks %q:\n%s", s, body)
				}
			}
			for _, s := range test.absent {
				if strings.Contains(body, s) {
					t.Errorf("the page holds %q:\n%s", s, body)
				}
			}
		})
	}
}

func TestOtherPathsAreNotFound(t *testing.T) {
	get(t, handler(func(string) string { return "" }), "/elsewhere", http.StatusNotFound)
}

func get(t *testing.T, h http.Handler, path string, status int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != status {
		t.Fatalf("GET %s: status %d, %v; want %d", path, w.Code, err, status)
	}
	return string(body)
}
