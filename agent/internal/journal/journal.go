// Package journal is the agent's memory of commands: what it took, how far it
// is with each, and what became of it (PROTOCOL.md section 6). Each step is on
// disk before the next is made, so that a kill at any point loses nothing and
// repeats nothing.
package journal

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"go.etcd.io/bbolt"
)

// keep is how long a confirmed result stays, to be sent again when wanted, and
// how long after its expiry a command is remembered.
const keep = 7 * 24 * time.Hour

var (
	metaBucket    = []byte("meta")
	entriesBucket = []byte("entries") // by id
)

// Step is how far the agent is with a command.
type Step string

// The steps, in order. Refused ends a command that the server did not let run.
const (
	Received  Step = "received"
	Accepted  Step = "accepted" // the server said yes to the ack
	Started   Step = "started"
	Finished  Step = "finished"  // the result is here
	Confirmed Step = "confirmed" // the server has the result
	Refused   Step = "refused"
)

// Entry is one command.
type Entry struct {
	ID          string      `json:"id"`
	Seq         int64       `json:"seq"`
	Data        string      `json:"data"` // the signed text
	Step        Step        `json:"step"`
	Reason      string      `json:"reason,omitempty"` // why it was refused
	ReceivedAt  time.Time   `json:"received_at"`
	AcceptedAt  time.Time   `json:"accepted_at,omitzero"`
	StartedAt   time.Time   `json:"started_at,omitzero"`
	EndedAt     time.Time   `json:"ended_at,omitzero"`
	ConfirmedAt time.Time   `json:"confirmed_at,omitzero"`
	Attempt     int         `json:"attempt,omitempty"`
	Result      *api.Result `json:"result,omitempty"`
}

// Close ends it.
func (j *Journal) Close() error { return j.db.Close() }

// Instance names this process on this journal.
func (j *Journal) Instance() api.Instance { return j.instance }

// Damage says what was wrong with the journal that stood here before this one,
// and where it is now; nil where nothing was wrong.
func (j *Journal) Damage() error { return j.damage }

// HighestSeq is the highest ever received in this epoch.
func (j *Journal) HighestSeq() (seq int64, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		if kept := tx.Bucket(metaBucket).Get([]byte("highest")); len(kept) == 8 {
			seq = int64(binary.BigEndian.Uint64(kept))
		}
		return nil
	})
	return seq, err
}

// Receive takes a command in, once. known is what the journal has of it
// already; then nothing is written.
func (j *Journal) Receive(id string, seq int64, data string) (known *Entry, err error) {
	err = j.db.Update(func(tx *bbolt.Tx) error {
		if known, err = read(tx, id); err != nil || known != nil {
			return err
		}
		meta := tx.Bucket(metaBucket)
		if kept := meta.Get([]byte("highest")); len(kept) != 8 || int64(binary.BigEndian.Uint64(kept)) < seq {
			if err := meta.Put([]byte("highest"), binary.BigEndian.AppendUint64(nil, uint64(seq))); err != nil {
				return err
			}
		}
		return write(tx, &Entry{ID: id, Seq: seq, Data: data, Step: Received, ReceivedAt: j.now()})
	})
	return known, err
}

// Accept keeps that the server let the command run. Asked again, the permit is
// new again.
func (j *Journal) Accept(id string) error {
	return j.change(id, func(e *Entry) {
		if e.Step == Received {
			e.Step = Accepted
		}
		e.AcceptedAt = j.now()
	})
}

// Start keeps that the command is about to run.
func (j *Journal) Start(id string) (attempt int, err error) {
	err = j.change(id, func(e *Entry) {
		e.Step, e.StartedAt = Started, j.now()
		e.Attempt++
		attempt = e.Attempt
	})
	return attempt, err
}

// Finish keeps the result.
func (j *Journal) Finish(id string, r api.Result) error {
	return j.change(id, func(e *Entry) {
		e.Step, e.Result, e.EndedAt = Finished, &r, j.now()
	})
}

// Refuse keeps that the command must never run here.
func (j *Journal) Refuse(id, reason string) error {
	return j.change(id, func(e *Entry) {
		e.Step, e.Reason, e.EndedAt = Refused, reason, j.now()
	})
}

// Confirm keeps that the server has the result.
func (j *Journal) Confirm(id string) error {
	return j.change(id, func(e *Entry) {
		if e.Step == Finished {
			e.Step, e.ConfirmedAt = Confirmed, j.now()
		}
	})
}

// Want makes confirmed results of these commands unconfirmed again, and
// reports whether there are any.
func (j *Journal) Want(ids []string) (any bool, err error) {
	for _, id := range ids {
		e, err := j.Get(id)
		if err != nil {
			return any, err
		}
		if e == nil || e.Step != Confirmed {
			continue
		}
		if err := j.change(id, func(e *Entry) { e.Step = Finished }); err != nil {
			return any, err
		}
		any = true
	}
	return any, nil
}

// Get returns an entry, nil where there is none.
func (j *Journal) Get(id string) (e *Entry, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		e, err = read(tx, id)
		return err
	})
	return e, err
}

// In lists the entries at any of the steps, in the order of seq.
func (j *Journal) In(steps ...Step) (list []Entry, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(entriesBucket).ForEach(func(_, text []byte) error {
			var e Entry
			if err := json.Unmarshal(text, &e); err != nil {
				return fmt.Errorf("read entry: %w", err)
			}
			if slices.Contains(steps, e.Step) {
				list = append(list, e)
			}
			return nil
		})
	})
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return list, err
}

// Sweep drops what nobody will ask about any more.
func (j *Journal) Sweep() error {
	done, err := j.In(Confirmed, Refused)
	if err != nil {
		return err
	}
	now := j.now()
	var old []Entry
	for _, e := range done {
		var c api.Command
		if json.Unmarshal([]byte(e.Data), &c) != nil {
			continue
		}
		if last := latest(e.EndedAt, e.ConfirmedAt, c.ExpiresAt); now.After(last.Add(keep)) {
			old = append(old, e)
		}
	}
	if len(old) == 0 {
		return nil
	}
	return j.db.Update(func(tx *bbolt.Tx) error {
		for _, e := range old {
			if err := tx.Bucket(entriesBucket).Delete([]byte(e.ID)); err != nil {
				return fmt.Errorf("drop entry: %w", err)
			}
		}
		return nil
	})
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// now has no monotonic part: what is kept is compared after suspends and
// restarts.
func (j *Journal) now() time.Time { return j.clock().Round(0).UTC() }

func (j *Journal) change(id string, do func(*Entry)) error {
	return j.db.Update(func(tx *bbolt.Tx) error {
		e, err := read(tx, id)
		if err != nil {
			return err
		}
		if e == nil {
			return fmt.Errorf("the journal has no command %s", id)
		}
		do(e)
		return write(tx, e)
	})
}

func read(tx *bbolt.Tx, id string) (*Entry, error) {
	text := tx.Bucket(entriesBucket).Get([]byte(id))
	if text == nil {
		return nil, nil
	}
	e := new(Entry)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("read entry: %w", err)
	}
	return e, nil
}

func write(tx *bbolt.Tx, e *Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry: %w", err)
	}
	return tx.Bucket(entriesBucket).Put([]byte(e.ID), text)
}

// Age is how long ago t was by the wall clock; a clock that was set back makes
// anything old.
func (j *Journal) Age(t time.Time) time.Duration {
	age := j.now().Sub(t)
	if age < 0 {
		return keep
	}
	return age
}
