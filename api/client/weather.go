package client

import (
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// Weather is an answer that did not come from our server: a proxy's page, a
// load balancer's 403. It is never a verdict on the caller; ask again.
type Weather struct {
	Status      int
	ContentType string
	Location    string        // of a redirect, which is not followed
	Beginning   string        // its first printable characters, for the log
	RetryAfter  time.Duration // 0 when it was not said
}

// Error says in one line what came instead of an answer.
func (w *Weather) Error() string {
	text := fmt.Sprintf("not an answer of the control plane: status %d, %s", w.Status, w.ContentType)
	if w.ContentType == "" {
		text = fmt.Sprintf("not an answer of the control plane: status %d, no content type", w.Status)
	}
	if w.Location != "" {
		text += ", a redirect to " + w.Location
	}
	if w.Beginning != "" {
		text += fmt.Sprintf(", beginning with %q", w.Beginning)
	}
	return text + "; did a proxy answer?"
}

func weather(answer *http.Response, body []byte) error {
	return &Weather{
		Status:      answer.StatusCode,
		ContentType: printable(answer.Header.Get("Content-Type"), 100),
		Location:    printable(answer.Header.Get("Location"), 200),
		Beginning:   printable(string(body[:min(len(body), 400)]), 100),
		RetryAfter:  retryAfter(answer),
	}
}

// printable keeps a page from writing to the terminal of whoever reads a log.
func printable(body string, most int) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, body)
	runes := []rune(strings.Join(strings.Fields(text), " "))
	return string(runes[:min(len(runes), most)])
}
