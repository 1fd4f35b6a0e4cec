package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/beckon-fleet/beckon/internal/cli"
)

// nothing stands for what is not known.
const nothing = "-"

// table writes rows under a head.
func (op *operator) table(head string, rows [][]string) error {
	w := columns(op.out)
	fmt.Fprintln(w, strings.ReplaceAll(head, " | ", "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = cell(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// field is a name and what there is to say of it.
type field struct{ name, value string }

// fields writes one thing, a line a member. A value of several lines stands
// below its name.
func (op *operator) fields(all ...field) error {
	w := columns(op.out)
	for _, f := range all {
		value := strings.TrimRight(cli.Printable(f.value), "\n")
		if strings.Contains(value, "\n") {
			w.Flush() // a block is no column
			fmt.Fprintf(op.out, "%s:\n%s\n", f.name, indent(value))
			continue
		}
		fmt.Fprintf(w, "%s:\t%s\n", f.name, cell(value))
	}
	return w.Flush()
}

func columns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// cell is text that fits into a table.
func cell(text string) string {
	return cmp.Or(strings.Join(strings.Fields(cli.Printable(text)), " "), nothing)
}

// brief is the first line of text, at most so many characters of it.
func brief(text string, most int) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	runes := []rune(line)
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	if more {
		return line + " …"
	}
	return line
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// ago is how far t is from now, by the server's clock.
func (op *operator) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return nothing
	}
	past := op.clock.now().Sub(*t)
	switch {
	case past.Abs() < time.Second: // the server's date has whole seconds
		return "now"
	case past < 0:
		return "in " + span(-past)
	}
	return span(past) + " ago"
}

// moment is the time itself, and how far it is.
func (op *operator) moment(t *time.Time) string {
	if t == nil || t.IsZero() {
		return nothing
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format("2006-01-02 15:04:05 UTC"), op.ago(t))
}

// span is a duration in one unit, or in two where one says too little.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 10*time.Hour && d%time.Hour >= time.Minute:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// size is a number of bytes in binary units.
func size(bytes int64) string {
	if bytes <= 0 {
		return nothing
	}
	const units = "KMGTPE"
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/1024, 0
	for ; value >= 1023.95 && unit < len(units)-1; unit++ {
		value /= 1024
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return fmt.Sprintf("%s %ciB", text, units[unit])
}

// pairs is "a=1, b=2", in order, for a separator ", ".
func pairs(m map[string]string, separator string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+"="+m[key])
	}
	return strings.Join(all, separator)
}

// counts is "2 offline, 3 online", in order, without those of which there are
// none.
func counts[K ~string](m map[K]int) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if m[key] != 0 {
			all = append(all, fmt.Sprintf("%d %s", m[key], key))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func number[N int | int64](n N) string {
	if n == 0 {
		return nothing
	}
	return fmt.Sprint(n)
}
