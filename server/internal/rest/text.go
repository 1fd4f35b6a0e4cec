package rest

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// storable reports whether every database can hold s: PostgreSQL takes neither
// NUL nor what is not UTF-8.
func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// mend replaces in a JSON text what is not storable by U+FFFD.
func mend(body []byte) []byte {
	const null, mark = `\u0000`, `\ufffd`
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte(mark))
	}
	if !bytes.Contains(body, []byte(null)) {
		return body
	}
	body = bytes.Clone(body)
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(body[i:], []byte(null)) {
			copy(body[i:], mark)
		}
		i++ // an escaped backslash begins no escape
	}
	return body
}
