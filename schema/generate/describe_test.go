package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
)

type logs struct {
	Line string `json:"line"`
}

// source of calls that package api does not have.
func sourceOf(calls ...string) *source {
	s := &source{map[string]named{}, map[string]string{}, map[string]string{}, map[string][]value{}}
	for _, c := range calls {
		s.calls[c] = named{"Try", "Try tries it. It may fail."}
	}
	return s
}

func TestCallsThatAreNoJSON(t *testing.T) {
	s := surfaces()[1]
	s.calls = []api.Call{
		api.Raw{Method: http.MethodPut, Path: "/api/v1/files/{id}", Takes: "application/gzip", ContentType: "application/json", Answer: logs{}},
		api.Endpoint[api.AppRequest, api.Page[logs]]{Method: http.MethodGet, Path: "/api/v1/apps/{app}/logs", As: []string{"text/event-stream"}},
	}
	document, err := s.document(sourceOf("PUT /api/v1/files/{id}", "GET /api/v1/apps/{app}/logs"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(document.yaml())
	for _, want := range []string{
		`
      parameters:
        - name: id
          in: path
          required: true
          schema:
            type: string
      requestBody:
        required: true
        content:
          application/gzip:
            schema: {}
`, `
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/logs"
`, `
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/logsPage"
            text/event-stream:
              schema:
                type: string
`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not hold %s\nbut is\n%s", want, text)
		}
	}
}

type unsound struct {
	Maybe *int        `json:"maybe"`
	Hook  func()      `json:"hook"`
	Short string      `json:"short" limit:"few"`
	Other chan string `json:"other,omitempty" limit:"1..2"`
}

// HTTPStatus may be any.
func (unsound) HTTPStatus() int { return http.StatusOK }

// What cannot be described is named, all of it.
func TestWhatCannotBeDescribed(t *testing.T) {
	s := surfaces()[1]
	s.calls = []api.Call{api.Endpoint[struct{}, unsound]{Method: http.MethodGet, Path: "/api/v1/try"}}
	_, err := s.document(sourceOf())
	if err == nil {
		t.Fatal("it was described")
	}
	for _, want := range []string{
		"GET /api/v1/try: no commented variable", "Also must list", "unsound.Maybe", "func(): no schema", `unsound.Short: the limit "few"`, "unsound.Other",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in: %v", want, err)
		}
	}
}
