package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Protocol is the newest protocol this code speaks. It rises only when a
// field, a route or a flow changes its meaning or goes (PROTOCOL.md section 0).
//
//	1  2026-11-30  the first one
const Protocol = 1

// Supported is the range of protocols a server of this code serves.
var Supported = ProtocolRange{Min: 1, Max: Protocol}

// ProtocolRange is a closed range of protocols.
type ProtocolRange struct{ Min, Max int }

// The headers of the protocol (PROTOCOL.md section 1). The first three travel
// with every agent request, the others with every answer.
const (
	HeaderProtocol      = "X-Protocol"
	HeaderAgentVersion  = "X-Agent-Version"
	HeaderAgentInstance = "X-Agent-Instance"
	HeaderProtocolMin   = "X-Protocol-Min"
	HeaderProtocolMax   = "X-Protocol-Max"
	HeaderRequestID     = "X-Request-Id"

	HeaderDigest         = "Content-Digest"      // of an upload (RFC 9530)
	HeaderIdempotencyKey = "Idempotency-Key"     // of an operator's request, at most 255 bytes
	HeaderReplayed       = "Idempotent-Replayed" // "true" on an answer that was given before
)

// ServerName is the extra name in every server certificate. Agents verify it
// under the pinned CA instead of the name they dialled, so that a move or a
// NAT name needs no new certificate (PROTOCOL.md section 1).
const ServerName = "control-plane.beckon.internal"

// Limits of the wire (PROTOCOL.md section 1).
const (
	MaxBody     = 1 << 20   // bytes of a request or an answer, as sent and inflated
	MaxDocument = 256 << 10 // bytes of a command's payload, checked at enqueue
	MaxOutput   = 64 << 10  // bytes of a result's output; an agent cuts it before sending
	MaxMessage  = 4 << 10   // bytes of an error or a message; longer ones are cut
	MaxPage     = 200       // items of one page of a list
	MaxFile     = 1 << 30   // bytes of an uploaded file
)

// Lifetimes and paces (PROTOCOL.md sections 2, 4, 5 and 6).
const (
	TokenLife       = time.Hour           // of a join token, unless it says otherwise
	MaxTokenLife    = 30 * 24 * time.Hour // of any join token
	JoinRepeat      = 10 * time.Minute    // how long the repeat of a join is answered like the first
	CertificateLife = 24 * time.Hour      // of a node's certificate
	Backdate        = 5 * time.Minute     // how far NotBefore lies before the issue
	RenewGrace      = 7 * 24 * time.Hour  // after NotAfter in which renew alone still answers
	CommandLife     = 15 * time.Minute    // until a command nobody acked expires
	MaxCommandLife  = 30 * 24 * time.Hour // of any command
	HeartbeatPace   = 10 * time.Second    // unless next_s says otherwise
	SlowPace        = 5 * time.Minute     // of an agent that was told to upgrade or is not known
	RefetchPace     = 10 * time.Minute    // every document is fetched as often, cursors or not
	PermitLife      = time.Minute         // an ack older than this is asked again before starting
	FileLife        = 24 * time.Hour      // of a file that nothing needs
	KeptRevisions   = 10                  // of an app whose files are kept, so that a rollback finds them
)

// OfflineAfter is the silence after which a node is offline, given the pace it
// was told: three heartbeats, and at least 30 s.
func OfflineAfter(pace time.Duration) time.Duration { return max(30*time.Second, 3*pace) }

// Instance says which process of which node speaks: the epoch of its journal,
// how often it was started on that journal, and a random part. It travels as
// "<epoch>.<starts>.<random>" (PROTOCOL.md section 1).
type Instance struct {
	Epoch  string
	Starts int64
	Random string
}

func (i Instance) String() string { return fmt.Sprintf("%s.%d.%s", i.Epoch, i.Starts, i.Random) }

// ParseInstance reads what String wrote. The parts are 1 to 64 characters.
func ParseInstance(s string) (i Instance, err error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 || !nameOf(parts[0], 64) || !nameOf(parts[2], 64) {
		return i, Errorf(Invalid, "%s must be <epoch>.<starts>.<random>", HeaderAgentInstance)
	}
	starts, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || starts < 1 {
		return i, Errorf(Invalid, "%s: the count of starts must be a whole number above 0", HeaderAgentInstance)
	}
	return Instance{parts[0], starts, parts[2]}, nil
}

// Inherits reports whether i may go on with what held acked: the same process,
// or a later start on the same journal (PROTOCOL.md section 6).
func (i Instance) Inherits(held Instance) bool {
	return i == held || i.Epoch == held.Epoch && i.Starts > held.Starts
}

// Cut is s in at most most bytes, cut between characters and marked where it
// was.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const mark = " …"
	return strings.ToValidUTF8(s[:max(most-len(mark), 0)], "") + mark
}

// nameOf reports whether s is 1 to most letters, digits, "-" or "_".
func nameOf(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// ValidName reports whether s can name a node or an app: 1 to 40 lower-case
// letters, digits and "-", none of the last at an end.
func ValidName(s string) bool {
	return nameOf(s, 40) && strings.ToLower(s) == s && !strings.ContainsRune(s, '_') &&
		!strings.HasPrefix(s, "-") && !strings.HasSuffix(s, "-")
}

// Labels are an operator's words about a node: at most 32, keys and values of
// at most 63 characters.
type Labels map[string]string

// String is how labels are written on a command line.
func (l Labels) String() string {
	words := make([]string, 0, len(l))
	for _, key := range slices.Sorted(maps.Keys(l)) {
		words = append(words, key+"="+l[key])
	}
	return strings.Join(words, ",")
}

// Validate says which label breaks the rule.
func (l Labels) Validate() error {
	if len(l) > 32 {
		return Errorf(Invalid, "labels: there are %d, and 32 is the most", len(l))
	}
	for key, value := range l {
		if len(key) > 63 || !nameOf(strings.NewReplacer(".", "", "/", "").Replace(key), 63) || len(value) > 63 || strings.ContainsAny(value, "\x00\n\r,=") {
			return Errorf(Invalid, "labels: %q=%q: a key is 1 to 63 letters, digits, -_./ and a value at most 63 characters without , = or line breaks", key, value)
		}
	}
	return nil
}
