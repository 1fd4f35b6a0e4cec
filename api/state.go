package api

import "slices"

// A State is where a command stands. The set is open: a reader that meets an
// unknown one shows it, and the database holds no CHECK on it.
type State string

// The states of a command (PROTOCOL.md section 6).
const (
	Queued     State = "queued"
	Delivered  State = "delivered"
	Acked      State = "acked"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Rejected   State = "rejected"
	Superseded State = "superseded"
	Expired    State = "expired"  // provably never ran
	Canceled   State = "canceled" // provably never ran
	Lost       State = "lost"     // nobody can tell
	Abandoned  State = "abandoned"
)

// States is every state of a command, in the order of its life.
var States = []State{Queued, Delivered, Acked, Succeeded, Failed, Rejected, Superseded, Expired, Canceled, Lost, Abandoned}

// next is the life of a command. Ack is the commit point: nothing before it
// has run, and nothing after it times out into a guess.
var next = map[State][]State{
	Queued:    {Delivered, Canceled, Expired},
	Delivered: {Acked, Rejected, Canceled, Expired},
	Acked:     {Succeeded, Failed, Rejected, Superseded, Lost, Abandoned},
}

// May reports whether a command in state s may go to state to.
func (s State) May(to State) bool { return slices.Contains(next[s], to) }

// Ended reports whether nothing can follow s.
func (s State) Ended() bool { return len(next[s]) == 0 }

// NeverRan reports whether a command that ended in state s has provably not
// run: the server never accepted an ack for it, or its agent refused it.
func (s State) NeverRan() bool {
	return s == Expired || s == Canceled || s == Rejected || s == Superseded
}

// An Outcome is what an agent says became of a command.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"
	OutcomeRejected   Outcome = "rejected"   // verified, refused, never started
	OutcomeSuperseded Outcome = "superseded" // gave way to a newer one, never started
	OutcomeUnknown    Outcome = "unknown"    // started, and nobody can tell
)

var outcomes = map[Outcome]State{
	OutcomeSucceeded:  Succeeded,
	OutcomeFailed:     Failed,
	OutcomeRejected:   Rejected,
	OutcomeSuperseded: Superseded,
	OutcomeUnknown:    Lost,
}

func (o Outcome) known() bool { return outcomes[o] != "" }

// State is where a command with this outcome ends.
func (o Outcome) State() State { return outcomes[o] }
