package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// object is a mapping that keeps the order in which it was written.
type object []member

type member struct {
	key   string
	value any // a string, number or bool, an object, or a list
}

type list []any

func (o *object) add(key string, value any) { *o = append(*o, member{key, value}) }

// yaml is the object as a document. It knows as much of YAML as an OpenAPI
// document needs, so that the order of members, which libraries sort away, is
// that of package api.
func (o object) yaml() []byte {
	var w bytes.Buffer
	o.write(&w, "")
	return w.Bytes()
}

func (o object) write(w *bytes.Buffer, indent string) {
	for i, m := range o {
		if i > 0 { // the first stands where the caller is
			w.WriteString(indent)
		}
		w.WriteString(scalar(m.key) + ":")
		writeValue(w, m.value, indent+"  ")
	}
}

func (l list) write(w *bytes.Buffer, indent string) {
	for _, item := range l {
		w.WriteString(indent + "-")
		if o, ok := item.(object); ok && len(o) > 0 {
			w.WriteString(" ")
			o.write(w, indent+"  ")
			continue
		}
		writeValue(w, item, indent+"  ")
	}
}

func writeValue(w *bytes.Buffer, v any, indent string) {
	switch v := v.(type) {
	case object:
		if len(v) == 0 {
			w.WriteString(" {}\n")
			return
		}
		w.WriteString("\n" + indent)
		v.write(w, indent)
	case list:
		if len(v) == 0 {
			w.WriteString(" []\n")
			return
		}
		w.WriteString("\n")
		v.write(w, indent)
	case string:
		writeText(w, v, indent)
	default:
		fmt.Fprintf(w, " %v\n", v)
	}
}

// writeText writes what has several lines as a block.
func writeText(w *bytes.Buffer, text, indent string) {
	if !strings.Contains(text, "\n") {
		w.WriteString(" " + scalar(text) + "\n")
		return
	}
	w.WriteString(" |-\n")
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			line = indent + line
		}
		w.WriteString(line + "\n")
	}
}

var (
	plain    = regexp.MustCompile(`^[A-Za-z/$][A-Za-z0-9 _./,;()+$'{}-]*$`)
	reserved = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|null|y|n)$| $`)
)

// scalar quotes what YAML might take for something else than text.
func scalar(text string) string {
	if plain.MatchString(text) && !reserved.MatchString(text) {
		return text
	}
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted) // a JSON string is a YAML one
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // a string can always be encoded
	}
	return strings.TrimSuffix(quoted.String(), "\n")
}
