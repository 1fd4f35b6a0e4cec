package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	for in, want := range map[string]string{
		"plain\n":                       "plain",
		"from Windows\r\n":              "from Windows",
		"no end":                        "no end",
		"\n":                            "",
		"\xff\xfe nul \x00":             "\uFFFD nul \x00",
		long[:maxLine] + "\n":           long[:maxLine],
		long:                            long[:maxLine-len(cutMark)] + cutMark,
		strings.Repeat("é", maxLine):    strings.Repeat("é", (maxLine-len(cutMark))/2) + cutMark,
		strings.Repeat("\xff", 5000):    "\uFFFD" + cutMark,
		strings.Repeat("\xffa", 2000):   strings.Repeat("\uFFFDa", 499) + cutMark,
		long[:maxLine-1] + "\xc3\xa9":   long[:maxLine-len(cutMark)] + cutMark,
		long[:maxLine-1] + "\xe2\x82":   long[:maxLine-len(cutMark)] + cutMark,
		"\x1b[31mred\x1b[0m and \u202e": "\x1b[31mred\x1b[0m and \u202e",
	} {
		if got := text([]byte(in)); got != want || len(got) > maxLine || !utf8.ValidString(got) {
			t.Errorf("%.20q of %d bytes became %.20q of %d, want %.20q of %d", in, len(in), got, len(got), want, len(want))
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("plain\n"))
	f.Add(bytes.Repeat([]byte("\xffé"), 1000))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got := text(raw); len(got) > maxLine || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

// Lines of any length come through one pipe, and all are counted.
func TestLogTurnsAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	var in strings.Builder
	const lines = 30_000
	for i := range lines {
		in.WriteString(strings.Repeat("y", i%300) + "\n")
	}
	in.WriteString(strings.Repeat("z", 1<<20) + "\nlast, without an end")
	for range 2 { // the second supervisor goes on counting
		l := openLog(dir)
		var both sync.WaitGroup
		for _, stream := range []string{"stdout", "stderr"} {
			both.Go(func() { l.copy(stream, strings.NewReader(in.String())) })
		}
		both.Wait()
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readLines(dir, 1<<30)
	if err != nil || got[len(got)-1].N != 4*(lines+2) || got[len(got)-1].Line != "last, without an end" {
		t.Fatalf("the last is %+v, %v", got[len(got)-1], err)
	}
	for i := range got[1:] {
		if got[i+1].N != got[i].N+1 {
			t.Fatalf("%d comes after %d", got[i+1].N, got[i].N)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != logFiles {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Size() > logSize+100_000 {
			t.Errorf("%s has %d bytes, %v", f.Name(), info.Size(), err)
		}
	}
	if tail, err := readLines(dir, 3); err != nil || !slices.Equal(tail, got[len(got)-3:]) {
		t.Errorf("the last 3 are %+v, %v", tail, err)
	}
}

// A log that was broken off costs one line.
func TestLogAfterABreak(t *testing.T) {
	dir := t.TempDir()
	l := openLog(dir)
	l.write("stdout", []string{"one"})
	if _, err := l.file.WriteString(`{"n": 2, "line": "hal`); err != nil {
		t.Fatal(err)
	}
	l.broken = true
	l.write("stdout", []string{"three"})
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	got, err := readLines(dir, 10)
	if err != nil || len(got) != 2 || got[1].Line != "three" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWanted(t *testing.T) {
	ok, bad := &Exit{}, &Exit{Code: 1}
	for _, c := range []struct {
		w    wish
		s    state
		want bool
	}{
		{wish{}, state{Phase: living}, false},
		{wish{Held: true, Restart: Always}, state{Phase: stopped}, false},
		{wish{Up: true, Restart: Never}, state{Phase: living}, false},
		{wish{Up: true, Restart: Always}, state{Phase: living}, true},
		{wish{Up: true, Restart: Always}, state{Phase: ended, Exit: ok}, true},
		{wish{Up: true, Restart: Always}, state{Phase: stopped, Exit: ok}, true}, // by whoever shut the machine down
		{wish{Up: true, Restart: OnFailure}, state{Phase: resting, Exit: bad}, true},
		{wish{Up: true, Restart: OnFailure}, state{Phase: ended, Exit: ok}, false},
		{wish{Up: true, Restart: OnFailure}, state{Phase: ended, Exit: bad, Streak: 1}, true},
		{wish{Up: true, Restart: OnFailure}, state{Phase: ended, Exit: bad, Streak: 6}, false},
		{wish{Up: true, Restart: OnFailure}, state{Phase: ended, Fault: "no program", Streak: 1}, true},
	} {
		if got := wanted(c.w, c.s); got != c.want {
			t.Errorf("%+v %+v: %t", c.w, c.s, got)
		}
	}
}

func TestPolicy(t *testing.T) {
	at := folder(t.TempDir())
	if err := save(at, specFile, spec{}); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		restart Restart
		code    int
		lived   time.Duration
		lives   int // until it stays ended; 0 for never
	}{
		{Never, 0, time.Second, 1},
		{Never, 1, time.Hour, 1},
		{OnFailure, 0, time.Second, 1},
		{OnFailure, 1, time.Second, 6},
		{OnFailure, 1, healthy, 0},
		{Always, 0, time.Second, 0},
		{Always, 1, time.Second, 0},
	} {
		if err := save(at, wishFile, wish{Up: true, Restart: c.restart}); err != nil {
			t.Fatal(err)
		}
		s := &supervisor{at: at}
		s.state.StartedAt, s.state.Exit = &start, &Exit{Code: c.code, At: start.Add(c.lived)}
		lives := 1
		for ; lives < 20 && s.another(); lives++ {
		}
		if lives != c.lives && !(c.lives == 0 && lives == 20) {
			t.Errorf("%s, code %d after %s: %d lives, want %d", c.restart, c.code, c.lived, lives, c.lives)
		}
	}
}

func TestDue(t *testing.T) {
	d := New(Config{})
	if !d.due("x") || d.due("x") || !d.due("y") {
		t.Error("the first time is free, the second is not, and others do not matter")
	}
	for range 10 {
		d.again["x"].next = time.Time{}
		d.due("x")
	}
	if got := d.again["x"].delay; got != longestPause {
		t.Errorf("the pause is %s", got)
	}
	d.rested("x", true, state{Phase: living})
	if d.again["x"] == nil {
		t.Error("one that lives is trusted at once")
	}
	long := time.Now().Add(-healthy - time.Second)
	d.rested("x", true, state{Phase: living, StartedAt: &long})
	if d.again["x"] != nil {
		t.Error("one that lived long is not trusted")
	}
}

func TestOneSupervisor(t *testing.T) {
	at := folder(t.TempDir())
	if alive, err := at.alive(); alive || err != nil {
		t.Errorf("without a lock: %t, %v", alive, err)
	}
	lock, err := at.hold(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := at.alive(); !alive || err != nil {
		t.Errorf("held: %t, %v", alive, err)
	}
	if _, err := at.hold(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "hold lock") {
		t.Errorf("it was held twice: %v", err)
	}
	if text, err := os.ReadFile(at.path(lockFile)); err != nil || string(text) != fmt.Sprint(os.Getpid()) {
		t.Errorf("its holder is %q, %v", text, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if alive, err := at.alive(); alive || err != nil {
		t.Errorf("let go: %t, %v", alive, err)
	}
}

func TestNamesStayInside(t *testing.T) {
	d := New(Config{Dir: t.TempDir()})
	for _, s := range []Spec{{App: "..", ID: "x"}, {App: "a", ID: "../x"}, {App: "", ID: "x"}, {App: "a/b", ID: "x"}, {App: ".new-1", ID: "x"}} {
		if err := d.Create(t.Context(), s, nil); err == nil {
			t.Errorf("%+v was made", s)
		}
	}
	if left, err := filepath.Glob(filepath.Join(d.dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("%q, %v", left, err)
	}
}
