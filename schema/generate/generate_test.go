package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The documents are what package api says now, and the same each time.
func TestDocumentsAreFresh(t *testing.T) {
	fresh, err := documents(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range fresh {
		kept, err := os.ReadFile(filepath.Join(root, folder, name))
		if err != nil || !bytes.Equal(kept, text) {
			t.Errorf("%s/%s is not what package api says; run make generate (%v)", folder, name, err)
		}
	}
	again, err := documents(root)
	if err != nil {
		t.Fatal(err)
	}
	for name := range fresh {
		if !bytes.Equal(fresh[name], again[name]) {
			t.Errorf("%s changes from one run to the next", name)
		}
	}
}

func TestGenerateSaysWhereToRunIt(t *testing.T) {
	if err := generate(t.TempDir()); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("got %v", err)
	}
}

func TestYAML(t *testing.T) {
	for text, want := range map[string]string{
		"plain words, as here": "plain words, as here",
		"/api/v1/apps/{app}":   "/api/v1/apps/{app}",
		"":                     `""`,
		"1":                    `"1"`,
		"1.5":                  `"1.5"`,
		"yes":                  `"yes"`,
		"True":                 `"True"`,
		"null":                 `"null"`,
		"n":                    `"n"`,
		"~":                    `"~"`,
		"a: b":                 `"a: b"`,
		"a #b":                 `"a #b"`,
		"- a":                  `"- a"`,
		"a ":                   `"a "`,
		"<a> & \"b\"":          `"<a> & \"b\""`,
		"größer":               `"größer"`,
	} {
		if got := scalar(text); got != want {
			t.Errorf("%q is written as %s, and not as %s", text, got, want)
		}
	}
	o := object{
		{"none", object{}},
		{"empty", list{}},
		{"number", 1},
		{"lines", "one\n\ntwo: 2"},
		{"list", list{"a", object{{"b", 1}, {"c", list{object{{"d", true}}}}}, list{"e"}}},
	}
	const want = `none: {}
empty: []
number: 1
lines: |-
  one

  two: 2
list:
  - a
  - b: 1
    c:
      - d: true
  -
    - e
`
	if got := string(o.yaml()); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"Join makes a node (PROTOCOL.md section 2). It needs no credentials.": "Makes a node",
		"Join is the first thing to ask: what it is.":                         "The first thing to ask: what it is",
		"A Join is where a node begins":                                       "Where a node begins",
		"":                                                                    "",
	} {
		if got := sentence("Join", text); got != want {
			t.Errorf("%q makes %q", text, got)
		}
	}
}
