package cli

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"unicode"
)

// output keeps the first failure to write, so that none is lost, and takes a
// reader that went away for one that has seen enough.
type output struct {
	to   io.Writer
	gone bool
	err  error
}

func (o *output) Write(p []byte) (int, error) {
	if o.gone {
		return len(p), nil
	}
	n, err := o.to.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		o.gone = true
		return len(p), nil
	}
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Printable takes out of text what could play with a terminal: escape
// sequences and all else that shows nothing. Line breaks and tabs stay. Use it
// on whatever another machine said.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}
