package app

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/api"
)

// What a message may hold. It stays below api.MaxMessage, so that whoever
// sends it may add some words.
const (
	maxWords = api.MaxMessage - 512
	maxLine  = 400
	maxLines = 20
)

// fate says how an instance ended.
func fate(i instance) string {
	switch {
	case i.fault != "":
		return "it could not be started: " + i.fault
	case i.lost:
		return "it ended together with its supervisor: that was killed, or the machine restarted"
	case i.exit == nil:
		return "it ended and was started again"
	case i.exit.oom:
		return fmt.Sprintf("it used more memory than it may and was killed (exit code %d): raise resources.mem_bytes", i.exit.code)
	}
	words := fmt.Sprintf("it exited with code %d", i.exit.code)
	switch lived := i.exit.at.Sub(i.startedAt).Round(100 * time.Millisecond); {
	case lived > 0:
		words += fmt.Sprintf(" after %s", lived)
	case lived == 0:
		words += " at once"
	}
	return words
}

// lastLines are the last that an instance wrote, made safe to show.
func (s *Service) lastLines(ctx context.Context, i instance) (safe []string) {
	if i.startedAt.IsZero() {
		return nil
	}
	lines, err := i.by.lines(ctx, i.id, maxLines)
	if err != nil {
		s.log.Warn("no log of an instance that failed", "instance", i.name, "error", err)
	}
	for _, line := range lines {
		if line = clean(line); line != "" {
			safe = append(safe, cut(line, maxLine))
		}
	}
	return safe
}

// message puts as many of the last lines under words as there is room.
func message(words string, lines []string) string {
	const title = "\nthe last lines of its log:"
	words = cut(clean(words), maxWords)
	room := maxWords - len(words) - len(title)
	first := len(lines)
	for first > 0 && len(lines[first-1])+1 <= room {
		first--
		room -= len(lines[first]) + 1
	}
	if first == len(lines) {
		return words
	}
	return words + title + "\n" + strings.Join(lines[first:], "\n")
}

// clean drops what a terminal or a page might obey: control characters, with
// the colour codes they begin, and bytes that are no text.
func clean(line string) string {
	var out strings.Builder
	for rest := line; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch {
		case r == '\x1b' && strings.HasPrefix(rest, "["):
			rest = strings.TrimLeft(rest[1:], "0123456789;?")
			rest = rest[min(1, len(rest)):]
		case r == '\t' || r == '\n':
			out.WriteByte(' ')
		case r != utf8.RuneError && unicode.IsGraphic(r):
			out.WriteRune(r)
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// cut shortens text to most bytes, at the end of a character.
func cut(text string, most int) string {
	const mark = "…"
	if len(text) <= most {
		return text
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
