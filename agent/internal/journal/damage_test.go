package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
)

// specimen is a closed journal; the last thing that happened to it is a start.
type specimen struct {
	epoch    string
	file     []byte
	commands int
}

func written(t *testing.T, commands int) specimen {
	t.Helper()
	b := open(t)
	for i := range commands {
		id := fmt.Sprintf("cmd_%03d", i)
		_, err := b.Receive(id, int64(i+1), strings.Replace(command(id, noon), "{}", `{"env":"`+strings.Repeat("x", i*500)+`"}`, 1))
		b.must(err)
		if i%2 == 0 {
			b.must(b.Finish(id, api.Result{Status: api.OutcomeSucceeded}))
		}
	}
	b.reopen()
	b.reopen()
	file, err := os.ReadFile(b.path)
	b.must(err)
	return specimen{b.Instance().Epoch, file, commands}
}

// damaged is what may be left of a file.
func (s specimen) damaged() map[string][]byte {
	noise := make([]byte, len(s.file))
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	cases := map[string][]byte{
		"one byte":  s.file[:1],
		"half":      s.file[:len(s.file)/2],
		"NULs":      make([]byte, len(s.file)),
		"noise":     noise,
		"text":      []byte("{}\n"),
		"half NULs": append(bytes.Clone(s.file[:len(s.file)/2]), make([]byte, len(s.file)/2)...),
	}
	const page = 4096
	for n := range len(s.file) / page {
		hole := func(from, to int) []byte {
			data := bytes.Clone(s.file)
			clear(data[n*page+from : n*page+to])
			return data
		}
		cases[fmt.Sprintf("cut before page %d", n)] = s.file[:max(n*page, 1)]
		cases[fmt.Sprintf("cut in page %d", n)] = s.file[:n*page+100]
		cases[fmt.Sprintf("page %d of NULs", n)] = hole(0, page)
		cases[fmt.Sprintf("page %d half NULs", n)] = hole(page/2, page)
		cases[fmt.Sprintf("page %d but its head", n)] = hole(16, page)
	}
	return cases
}

// Field case: power was lost, or the disk is bad. Whatever is left of the file,
// all of it is there again, or it is put aside and a new epoch says so.
func TestDamagedJournalIsPutAside(t *testing.T) {
	t.Parallel()
	for _, s := range []specimen{written(t, 0), written(t, 12)} {
		survived, cases := 0, s.damaged()
		for name, data := range cases {
			path := filepath.Join(t.TempDir(), "journal.db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if wholeAgain(t, name, path, s) {
				survived++
			}
		}
		if survived < 2 || survived > len(cases)*2/3 { // pages that hold nothing
			t.Errorf("%d of %d survived", survived, len(cases))
		}
	}
}

func TestWhatStandsInItsPlace(t *testing.T) {
	s := written(t, 3)
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.MkdirAll(filepath.Join(path, "not", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if wholeAgain(t, "a folder", path, s) {
		t.Error("a folder was taken for a journal")
	}
	path = filepath.Join(t.TempDir(), "journal.db")
	if err := errors.Join(os.WriteFile(path, s.file, 0o600), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	if !wholeAgain(t, "open to others", path, s) {
		t.Error("one that others may read was taken for damaged")
	}
}

// wholeAgain opens what is left of a journal and reports whether all that was written is
// there. Else nothing may be, and it must be said.
func wholeAgain(t *testing.T, name, path string, s specimen) bool {
	t.Helper()
	j, err := journal.Open(path, func() time.Time { return noon })
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return false
	}
	all, err := j.In(journal.Received, journal.Finished)
	damage, now := j.Damage(), j.Instance()
	if err := errors.Join(err, j.Close()); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: others may read it: %v, %v", name, info, err)
	}
	aside, err := filepath.Glob(path + ".corrupt-*")
	if err != nil {
		t.Fatal(err)
	}
	if damage == nil {
		if now.Epoch != s.epoch || len(all) != s.commands || len(aside) != 0 {
			t.Errorf("%s: silently %d commands in epoch %s are left, beside %v", name, len(all), now.Epoch, aside)
		}
		return true
	}
	if now.Epoch == s.epoch || now.Starts != 1 || len(all) != 0 || len(aside) != 1 || !strings.Contains(damage.Error(), aside[0]) {
		t.Errorf("%s: %v; %d commands in epoch %s, beside %v", name, damage, len(all), now.Epoch, aside)
	}
	if j, err = journal.Open(path, time.Now); err != nil || j.Damage() != nil || j.Instance().Starts != 2 || j.Instance().Epoch != now.Epoch {
		t.Errorf("%s: the start after that: %v", name, err)
	}
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return false
}

// An empty file is memory that was lost, or a first start that a power cut
// ended: both are a new epoch, and nothing is there to be kept.
func TestEmptyJournalIsANewEpoch(t *testing.T) {
	b := open(t)
	b.receive("cmd_1", 7)
	epoch := b.Instance().Epoch
	b.must(b.Close())
	b.must(os.Truncate(b.path, 0))
	b.Journal = nil
	b.reopen()
	seq, err := b.HighestSeq()
	if now := b.Instance(); now.Epoch == epoch || now.Starts != 1 || seq != 0 || err != nil || b.entry("cmd_1") != nil || b.Damage() != nil {
		t.Errorf("after %s came %s, seq %d: %v, %v", epoch, now, seq, err, b.Damage())
	}
}

// Several agents that are started on one damaged journal: one gets a new one,
// none puts that aside, and one says what happened.
func TestDamagedJournalIsPutAsideOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var opened, said atomic.Int32
	for range 4 {
		wg.Go(func() {
			j, err := journal.Open(path, time.Now)
			if err == nil {
				opened.Add(1)
				t.Cleanup(func() { j.Close() })
				err = j.Damage()
			} else if !strings.Contains(err.Error(), "another agent uses") {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), ".corrupt-") {
				said.Add(1)
			}
		})
	}
	wg.Wait()
	aside, err := filepath.Glob(path + ".corrupt-*")
	if opened.Load() != 1 || said.Load() != 1 || len(aside) != 1 || err != nil {
		t.Errorf("%d opened it, %d said why; put aside were %v, %v", opened.Load(), said.Load(), aside, err)
	}
}

// What the system refuses now is no damage.
func TestReadOnlyDiskIsNoDamage(t *testing.T) {
	dir := durabletest.SmallDisk(t, 4<<20)
	path := filepath.Join(dir, "journal.db")
	j, err := journal.Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	durabletest.ReadOnly(t, dir)
	if _, err := journal.Open(path, time.Now); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("got %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 1 {
		t.Errorf("there are %v, %v", names, err)
	}
}

// A full disk refuses a step, loses none, and is forgotten when there is room.
func TestFullDisk(t *testing.T) {
	dir := durabletest.SmallDisk(t, 1<<20)
	b := &book{t: t, path: filepath.Join(dir, "journal.db"), now: noon}
	b.reopen()
	defer func() { b.must(b.Close()) }()
	b.receive("cmd_1", 1)
	filler := filepath.Join(dir, "filler")
	file, err := os.Create(filler)
	b.must(err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	received := 0
	for i := range 100 {
		id := fmt.Sprintf("cmd_big_%d", i)
		_, err = b.Receive(id, int64(i+2), command(id, noon)+strings.Repeat(" ", 10<<10))
		if err != nil {
			break
		}
		received++
	}
	if err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("the disk took %d large commands: %v", received, err)
	}
	if e := b.entry("cmd_1"); e == nil || len(strings.Fields(b.ids(journal.Received))) != received+1 {
		t.Errorf("%d were taken, and there are %s", received+1, b.ids(journal.Received))
	}
	b.must(os.Remove(filler))
	b.must(file.Close())
	b.receive("cmd_last", 200)
	b.reopen()
	if b.Damage() != nil || b.entry("cmd_last") == nil || b.entry("cmd_1") == nil {
		t.Errorf("with room again: %v, %s", b.Damage(), b.ids(journal.Received))
	}
}
