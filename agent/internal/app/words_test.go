package app

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/api"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain words, Größe 5 €":      "plain words, Größe 5 €",
		"\x1b[1;31mred\x1b[0m\r":      "red",
		"a\tb\nc":                     "a b c",
		"bell\a \x00nul \xffbyte":     "bell nul byte",
		"right-to-left \u202egnp.exe": "right-to-left gnp.exe",
		"\x1b[":                       "",
		"\x1b]0;title\a":              "]0;title",
		"   ":                         "",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestMessageKeepsTheLastLines(t *testing.T) {
	var lines []string
	for range maxLines {
		lines = append(lines, strings.Repeat("é", maxLine/2))
	}
	lines[maxLines-1] = "the end"
	got := message("it failed", lines)
	if len(got) > maxWords || !strings.HasPrefix(got, "it failed\n") || !strings.HasSuffix(got, "\nthe end") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if got := message("it failed", nil); got != "it failed" {
		t.Errorf("without lines it is %q", got)
	}
	if got := message(strings.Repeat("é", api.MaxMessage), lines); len(got) > maxWords || !utf8.ValidString(got) {
		t.Errorf("long words became %d bytes", len(got))
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("it exited with code 1", "first\nlast")
	f.Add("\x1b[31m", "\xff\xfe\n\u202e\x1b[")
	f.Add(strings.Repeat("€", api.MaxMessage), strings.Repeat("x\n", api.MaxMessage))
	f.Fuzz(func(t *testing.T, words, log string) {
		var lines []string
		for line := range strings.Lines(log) {
			lines = append(lines, cut(clean(line), maxLine))
		}
		got := message(words, lines)
		if len(got) > maxWords || !utf8.ValidString(got) {
			t.Errorf("%d bytes, %q", len(got), got)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) {
			t.Errorf("it holds control characters: %q", got)
		}
	})
}

func TestClash(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"0.0.0.0:80", "127.0.0.2:80", true},
		{"127.0.0.2:80", "[::]:80", true},
		{"", "127.0.0.2:80", false},
		{"", "", false},
	} {
		if got := clash(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}

func TestFate(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, i := range map[string]instance{
		"it exited with code 3 after 1.2s": {startedAt: start, exit: &exit{code: 3, at: start.Add(1234 * time.Millisecond)}},
		"it exited with code 0 at once":    {startedAt: start, exit: &exit{at: start.Add(time.Millisecond)}},
		"it exited with code 1":            {startedAt: start, exit: &exit{code: 1, at: start.Add(-time.Minute)}}, // of the life before
		"it ended and was started again":   {startedAt: start},
		"it could not be started: no disk": {fault: "no disk", exit: &exit{code: 128}},
		"it used more memory than it may and was killed (exit code 137): raise resources.mem_bytes": {exit: &exit{code: 137, oom: true}},
	} {
		if got := fate(i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
