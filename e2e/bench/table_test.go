package bench

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

// figure is what was measured of Beckon, and its limit.
type figure struct {
	name   string
	unit   string // of both
	metric string // the name that benchstat shows
	value  float64
	limit  float64
	of     string // what the limit is
	rate   bool   // more is better
}

// ratio is how much worse the figure is than its limit: 1 is as good.
func (f figure) ratio() float64 {
	if f.rate {
		return f.limit / f.value
	}
	return f.value / f.limit
}

// table is all figures of a run.
type table struct{ rows []figure }

// add keeps figures for the table, and has go test print them.
func (t *table) add(b *testing.B, all ...figure) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // of a whole benchmark: it means nothing
	for _, f := range all {
		b.ReportMetric(f.value, f.metric)
		b.ReportMetric(f.limit, "limit:"+f.metric)
		if f.limit > 0 {
			b.ReportMetric(f.ratio(), "ratio:"+f.metric)
		}
	}
	t.rows = append(t.rows, all...)
}

// print prints nothing when nothing was measured.
func (t *table) print(to io.Writer) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(to, "\nBeckon beside its limits, on %s. %s.\n\n", machine(), pinning())
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tBECKON\tLIMIT\tRATIO\tTHE LIMIT IS")
	for _, f := range t.rows {
		ratio := "-"
		if f.limit > 0 {
			ratio = strconv.FormatFloat(f.ratio(), 'f', 1, 64)
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s %s\t%s\t%s\n", f.name, short(f.value), f.unit, short(f.limit), f.unit, ratio, f.of)
	}
	w.Flush()
	fmt.Fprintln(to, "\nA ratio says how many times worse than its limit a figure is; there is none beside nothing.")
}

// short has three digits, or the whole number.
func short(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// machine is what a reader must know to compare, load by others included.
func machine() string {
	text := fmt.Sprintf("%d CPUs", cpus())
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				text += " (" + strings.TrimSpace(model) + ")"
				break
			}
		}
	}
	text += ", " + runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version()
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		text += ", load average " + strings.Fields(string(load))[0]
	}
	return text
}

// pinning says who runs where.
func pinning() string {
	if cpu := os.Getenv("BENCH_CPU"); cpu != "" {
		return "What is measured ran on CPU " + cpu + ", what calls it on the others"
	}
	return "Nothing was pinned to a CPU: what is measured and what calls it shared all"
}
