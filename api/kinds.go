package api

import (
	"bytes"
	"encoding/json"
	"time"
)

// A Kind is a command an agent carries out: the mirror of an Endpoint. Its
// fields are unexported, so only this package makes one: the set is closed.
type Kind[P Payload, R any] struct {
	name       string
	tier       Tier // the least a node must allow
	deadline   time.Duration
	afterCrash AfterCrash
	lane       func(P) string // commands of one lane run in order, lanes side by side
	supersedes bool           // one that waits in its lane gives way to a newer one
}

// A Payload checks itself, on both sides: neither trusts the other.
type Payload interface{ Validate() error }

// A Tier is how much a node lets the control plane do.
type Tier int

// The tiers (PROTOCOL.md section 5).
const (
	TierObserve Tier = iota
	TierOperate
	TierDeploy
	TierManage
)

// AfterCrash says what becomes of a command whose agent died while it ran.
type AfterCrash string

// What may become of it.
const (
	Repeat AfterCrash = "repeat" // running it again does no harm
	Probe  AfterCrash = "probe"  // look whether its effect is there
	Never  AfterCrash = "never"  // nobody can tell: the result is unknown
)

// AnyKind is a Kind whose payload is known by name only: what a route that
// takes {kind, payload}, a table or a batch works with.
type AnyKind interface {
	Name() string
	Tier() Tier
	Deadline() time.Duration
	AfterCrash() AfterCrash
	Supersedes() bool
	// Check says whether payload is one of this kind, and a valid one.
	Check(payload json.RawMessage) error
	sealed()
}

// Kinds is every command there is.
var Kinds = []AnyKind{
	Deploy,
	Restart,
	Stop,
	Remove,
}

// KindNamed finds a kind.
func KindNamed(name string) (AnyKind, error) {
	for _, k := range Kinds {
		if k.Name() == name {
			return k, nil
		}
	}
	return nil, Errorf(Invalid, "there is no kind %q; see PROTOCOL.md section 6", name)
}

// Name is how the kind is called on the wire.
func (k Kind[P, R]) Name() string { return k.name }

// Tier is the least a node must allow.
func (k Kind[P, R]) Tier() Tier { return k.tier }

// Deadline is how long a handler may take.
func (k Kind[P, R]) Deadline() time.Duration { return k.deadline }

// AfterCrash says what becomes of it when the agent died while it ran.
func (k Kind[P, R]) AfterCrash() AfterCrash { return k.afterCrash }

// Supersedes reports whether a waiting one gives way to a newer one.
func (k Kind[P, R]) Supersedes() bool { return k.supersedes }

// Lane is the lane in which p runs.
func (k Kind[P, R]) Lane(p P) string { return k.lane(p) }

func (k Kind[P, R]) sealed() {}

// Check says whether payload is one of this kind, and a valid one.
func (k Kind[P, R]) Check(payload json.RawMessage) error {
	p, err := k.Parse(payload)
	if err != nil {
		return err
	}
	// What an operator misspells is refused by name; an agent reads on, since a
	// newer server may say more than it knows.
	strict := json.NewDecoder(bytes.NewReader(payload))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&p); err != nil {
		return Errorf(Invalid, "the payload is not one of %s: %v", k.name, err)
	}
	return nil
}

// Parse reads a payload of this kind and validates it.
func (k Kind[P, R]) Parse(payload json.RawMessage) (p P, err error) {
	if err := json.Unmarshal(payload, &p); err != nil {
		return p, Errorf(Invalid, "the payload is not one of %s: %v", k.name, err)
	}
	err = p.Validate()
	return p, err
}
