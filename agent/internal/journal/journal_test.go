package journal_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// book is a journal on a disk with a clock that a test moves.
type book struct {
	*journal.Journal
	t    *testing.T
	path string
	now  time.Time
}

func open(t *testing.T) *book {
	t.Helper()
	b := &book{t: t, path: filepath.Join(t.TempDir(), "journal.db"), now: noon}
	b.reopen()
	t.Cleanup(func() { b.must(b.Close()) })
	return b
}

// reopen is a restart of the agent.
func (b *book) reopen() {
	b.t.Helper()
	if b.Journal != nil {
		b.must(b.Close())
	}
	j, err := journal.Open(b.path, func() time.Time { return b.now })
	b.must(err)
	b.Journal = j
}

func (b *book) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *book) receive(id string, seq int64) {
	b.t.Helper()
	known, err := b.Receive(id, seq, command(id, b.now.Add(time.Hour)))
	if err != nil || known != nil {
		b.t.Fatalf("receive %s: %v, %v", id, known, err)
	}
}

func (b *book) entry(id string) *journal.Entry {
	b.t.Helper()
	e, err := b.Get(id)
	b.must(err)
	return e
}

// ids are those of the entries at the steps, all in one string.
func (b *book) ids(steps ...journal.Step) string {
	b.t.Helper()
	list, err := b.In(steps...)
	b.must(err)
	var ids []string
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

func command(id string, expires time.Time) string {
	text, err := json.Marshal(api.Command{ID: id, Kind: "stop", CreatedAt: noon, ExpiresAt: expires, Payload: json.RawMessage(`{}`)})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestEveryStepSurvivesARestart(t *testing.T) {
	b := open(t)
	b.receive("cmd_1", 41)
	result := api.Result{Status: api.OutcomeFailed, Error: "no <image>", Output: json.RawMessage(`{"a":1}`), Attempt: 1}
	for _, step := range []struct {
		want journal.Step
		do   func() error
	}{
		{journal.Received, func() error { return nil }},
		{journal.Accepted, func() error { return b.Accept("cmd_1") }},
		{journal.Started, func() error { _, err := b.Start("cmd_1"); return err }},
		{journal.Finished, func() error { return b.Finish("cmd_1", result) }},
		{journal.Confirmed, func() error { return b.Confirm("cmd_1") }},
	} {
		b.now = b.now.Add(time.Second)
		b.must(step.do())
		before := b.entry("cmd_1")
		b.reopen()
		after := b.entry("cmd_1")
		if after.Step != step.want || text(t, before) != text(t, after) || after.Data != command("cmd_1", noon.Add(time.Hour)) || after.Seq != 41 {
			t.Errorf("want %s, and the same again:\n%s\n%s", step.want, text(t, before), text(t, after))
		}
	}
	e := b.entry("cmd_1")
	if text(t, e.Result) != text(t, result) || e.Attempt != 1 {
		t.Errorf("the result was changed: %s", text(t, e.Result))
	}
	for i, at := range []time.Time{e.ReceivedAt, e.AcceptedAt, e.StartedAt, e.EndedAt, e.ConfirmedAt} {
		if want := noon.Add(time.Duration(i+1) * time.Second); i > 0 && !at.Equal(want) {
			t.Errorf("time %d is %v, want %v", i, at, want)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEpochStaysAndStartsCountUp(t *testing.T) {
	b := open(t)
	first := b.Instance()
	if _, err := api.ParseInstance(first.String()); err != nil || first.Starts != 1 {
		t.Fatalf("%s: %v", first, err)
	}
	if first != b.Instance() {
		t.Error("one process has two names")
	}
	for starts := int64(2); starts < 5; starts++ {
		b.reopen()
		next := b.Instance()
		if next.Epoch != first.Epoch || next.Starts != starts || next.Random == first.Random || !next.Inherits(first) {
			t.Errorf("after %s came %s", first, next)
		}
	}
	if other := open(t).Instance(); other.Epoch == first.Epoch {
		t.Errorf("two journals have the epoch %s", first.Epoch)
	}
}

func TestReceivesOnce(t *testing.T) {
	b := open(t)
	b.receive("cmd_1", 7)
	b.must(b.Accept("cmd_1"))
	known, err := b.Receive("cmd_1", 9, `{"id":"cmd_1","other":true}`)
	if err != nil || known == nil || known.Seq != 7 || known.Step != journal.Accepted || known.Data != command("cmd_1", noon.Add(time.Hour)) {
		t.Errorf("the second time: %+v, %v", known, err)
	}
	if e := b.entry("cmd_1"); text(t, e) != text(t, known) {
		t.Errorf("it was written again: %+v", e)
	}
	if e := b.entry("cmd_2"); e != nil {
		t.Errorf("nobody sent %+v", e)
	}
	if seq, err := b.HighestSeq(); err != nil || seq != 7 {
		t.Errorf("what was refused raised the highest seq to %d: %v", seq, err)
	}
}

func TestListsInTheOrderOfSeq(t *testing.T) {
	b := open(t)
	for i, id := range []string{"cmd_c", "cmd_a", "cmd_d", "cmd_b"} {
		b.receive(id, int64(i+1))
	}
	b.must(b.Accept("cmd_d"))
	if got := b.ids(journal.Received) + ", " + b.ids(journal.Received, journal.Accepted) + ", " + b.ids(journal.Started); got != "cmd_c cmd_a cmd_b, cmd_c cmd_a cmd_d cmd_b, " {
		t.Errorf("got %s", got)
	}
}

func TestStepsThatDoNotFit(t *testing.T) {
	b := open(t)
	for name, do := range map[string]func() error{
		"accept":  func() error { return b.Accept("cmd_0") },
		"start":   func() error { _, err := b.Start("cmd_0"); return err },
		"finish":  func() error { return b.Finish("cmd_0", api.Result{}) },
		"refuse":  func() error { return b.Refuse("cmd_0", "x") },
		"confirm": func() error { return b.Confirm("cmd_0") },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "cmd_0") {
			t.Errorf("%s of what never came: %v", name, err)
		}
	}
	b.receive("cmd_1", 1)
	b.must(b.Confirm("cmd_1"))
	if e := b.entry("cmd_1"); e.Step != journal.Received {
		t.Errorf("a result that is not there was confirmed: %s", e.Step)
	}
	b.must(b.Accept("cmd_1"))
	if _, err := b.Start("cmd_1"); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Hour)
	b.must(b.Accept("cmd_1")) // asked again after a restart
	if e := b.entry("cmd_1"); e.Step != journal.Started || !e.AcceptedAt.Equal(b.now) || !e.StartedAt.Equal(noon) {
		t.Errorf("a new permit undid the start: %+v", e)
	}
}

func TestWantedResultsAreSentAgain(t *testing.T) {
	b := open(t)
	for i, id := range []string{"cmd_received", "cmd_refused", "cmd_finished", "cmd_confirmed"} {
		b.receive(id, int64(i+1))
	}
	b.must(b.Refuse("cmd_refused", "command_expired"))
	b.must(b.Finish("cmd_finished", api.Result{Status: api.OutcomeSucceeded}))
	b.must(b.Finish("cmd_confirmed", api.Result{Status: api.OutcomeSucceeded}))
	b.must(b.Confirm("cmd_confirmed"))
	if any, err := b.Want([]string{"cmd_unknown", "cmd_received", "cmd_refused", "cmd_finished"}); any || err != nil {
		t.Errorf("there is nothing to send again: %v, %v", any, err)
	}
	if got := b.ids(journal.Finished); got != "cmd_finished" {
		t.Errorf("unsent are %s", got)
	}
	if any, err := b.Want([]string{"cmd_unknown", "cmd_confirmed"}); !any || err != nil {
		t.Errorf("one is wanted: %v, %v", any, err)
	}
	b.reopen()
	if got := b.ids(journal.Finished); got != "cmd_finished cmd_confirmed" {
		t.Errorf("unsent are %s", got)
	}
}

func TestSweepKeepsSevenDays(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		expires, confirmed time.Duration // after the end
		stays              time.Duration
	}{
		"as usual":            {expires: 15 * time.Minute, confirmed: time.Second, stays: week + 15*time.Minute},
		"expired long ago":    {expires: -time.Hour, confirmed: time.Second, stays: week + time.Second},
		"long life":           {expires: 30 * 24 * time.Hour, confirmed: time.Second, stays: week + 30*24*time.Hour},
		"offline for a month": {expires: time.Hour, confirmed: 30 * 24 * time.Hour, stays: week + 30*24*time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			_, err := b.Receive("cmd_1", 7, command("cmd_1", noon.Add(c.expires)))
			b.must(err)
			b.must(b.Finish("cmd_1", api.Result{Status: api.OutcomeSucceeded}))
			b.now = noon.Add(c.confirmed)
			b.must(b.Confirm("cmd_1"))
			b.now = noon.Add(c.stays)
			b.must(b.Sweep())
			if b.entry("cmd_1") == nil {
				t.Errorf("it was dropped after %v", c.stays)
			}
			b.now = b.now.Add(time.Second)
			b.must(b.Sweep())
			if b.entry("cmd_1") != nil {
				t.Errorf("it is still there after %v", c.stays+time.Second)
			}
			b.reopen()
			if seq, err := b.HighestSeq(); err != nil || seq != 7 || b.Damage() != nil {
				t.Errorf("the highest seq ever is forgotten: %d, %v", seq, err)
			}
		})
	}
}

func TestSweepDropsNothingUnfinished(t *testing.T) {
	b := open(t)
	for i, id := range []string{"cmd_1", "cmd_2", "cmd_3", "cmd_4", "cmd_5"} {
		b.receive(id, int64(i+1))
	}
	b.must(b.Accept("cmd_2"))
	_, err := b.Start("cmd_3")
	b.must(err)
	b.must(b.Finish("cmd_4", api.Result{Status: api.OutcomeSucceeded}))
	b.must(b.Refuse("cmd_5", "command_canceled"))
	b.now = noon.AddDate(1, 0, 0)
	b.must(b.Sweep())
	if got := b.ids(journal.Received, journal.Accepted, journal.Started, journal.Finished, journal.Refused); got != "cmd_1 cmd_2 cmd_3 cmd_4" {
		t.Errorf("after a year there are %s", got)
	}
}

// Field case: the clock jumps, in both directions.
func TestClockSetBack(t *testing.T) {
	b := open(t)
	b.receive("cmd_1", 1)
	b.must(b.Accept("cmd_1"))
	at := b.entry("cmd_1").AcceptedAt
	for _, c := range []struct {
		moved time.Duration
		fresh bool
	}{
		{0, true},
		{59 * time.Second, true},
		{61 * time.Second, false},
		{-time.Nanosecond, false}, // nobody can tell how old it is
		{-2 * time.Hour, false},
		{13 * time.Hour, false},
	} {
		b.now = noon.Add(c.moved)
		if fresh := b.Age(at) < api.PermitLife; fresh != c.fresh {
			t.Errorf("moved by %v a permit is %v old", c.moved, b.Age(at))
		}
	}
	b.now = noon.Add(-365 * 24 * time.Hour)
	b.must(b.Finish("cmd_1", api.Result{Status: api.OutcomeSucceeded}))
	b.must(b.Confirm("cmd_1"))
	b.must(b.Sweep())
	b.reopen()
	if e := b.entry("cmd_1"); e == nil || e.Step != journal.Confirmed {
		t.Errorf("in the past it became %+v", e)
	}
}

// A clock with a monotonic part would go on counting what a suspend does not.
func TestTimesHaveNoMonotonicPart(t *testing.T) {
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	past := time.Now().Round(0).Add(-90 * time.Second)
	if age := j.Age(past); age < 90*time.Second || age > 100*time.Second {
		t.Errorf("its age is %v", age)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	b := open(t)
	b.receive("cmd_1", 1)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := journal.Open(b.path, time.Now)
		if err == nil || err.Error() != "another agent uses "+b.path+"; stop it first" {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it waited for %v", took)
		}
	})
	if b.entry("cmd_1") == nil || b.Instance().Starts != 1 {
		t.Error("the second one changed something")
	}
	b.reopen()
	if b.Instance().Starts != 2 {
		t.Errorf("it was counted as start %d", b.Instance().Starts)
	}
}
