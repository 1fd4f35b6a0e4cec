package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"time"
)

// Heartbeat says that a node is alive and what it has (PROTOCOL.md section 5).
// Only the capacity can make it a 400: every other member that does not fit is
// dropped and named in the answer's warnings.
var Heartbeat = Endpoint[HeartbeatRequest, HeartbeatResponse]{Method: http.MethodPost, Path: "/agent/v1/heartbeat"}

// HeartbeatRequest is one heartbeat. An absent member is not known, never zero.
type HeartbeatRequest struct {
	CPUCores  int   `json:"cpu_cores" limit:"1.."`
	MemBytes  int64 `json:"mem_bytes" limit:"1.."`
	DiskBytes int64 `json:"disk_bytes" limit:"1.."`

	N              int64    `json:"n,omitempty"`               // counts up in one instance; a lower one came late
	Hello          *Hello   `json:"hello,omitempty"`           // first, on change, and when wanted
	Self           *Self    `json:"self,omitempty"`            // the agent process
	Wake           *Wake    `json:"wake,omitempty"`            // how the agent learns of work
	Applied        *Applied `json:"applied,omitempty"`         // how far the agent is
	UnackedResults []string `json:"unacked_results,omitempty"` // command ids whose result has no answer yet

	Dropped []string `json:"-"` // members that did not fit
}

// Hello is what changes rarely.
type Hello struct {
	BootID       string            `json:"boot_id,omitempty"`
	Hostname     string            `json:"hostname,omitempty"`
	OS           string            `json:"os,omitempty"`
	Arch         string            `json:"arch,omitempty"`
	Kernel       string            `json:"kernel,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"` // at most 32 of at most 40 characters
	Tier         *int              `json:"tier,omitempty"`
	Release      *Release          `json:"release,omitempty"`
	Runtimes     map[string]string `json:"runtimes,omitempty"` // what can run instances, and its version

	dropped []string
}

// Release says how the agent was installed.
type Release struct {
	Kind string `json:"kind"` // systemd, container, manual
}

// Self is the agent process.
type Self struct {
	RSSBytes   int64 `json:"rss_bytes,omitempty"`
	Goroutines int   `json:"goroutines,omitempty"`
}

// Wake is how the agent learns of work: its rung of the ladder, why it is on no
// better one, and since when.
type Wake struct {
	Rung   string     `json:"rung"` // stream, long_poll, interval
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

// Applied is how far the agent is with each cursor.
type Applied struct {
	Commands int64 `json:"commands"` // highest seq ever journalled in this epoch
}

// HeartbeatResponse sets the pace and says what the node should have.
type HeartbeatResponse struct {
	ServerTime    time.Time `json:"server_time"`
	NextS         int       `json:"next_s"`       // seconds until the next heartbeat
	HelloWanted   bool      `json:"hello_wanted"` // this server holds none of the sender's instance
	Cursors       Cursors   `json:"cursors"`
	ResultsWanted []string  `json:"results_wanted,omitempty"` // acked commands of which no result is known
	Active        []string  `json:"active,omitempty"`         // deployments believed active, when a hello came
	Warnings      []string  `json:"warnings,omitempty"`
}

// Cursors says what the node should have (PROTOCOL.md section 4). They are
// compared for equality only; an absent one is not known.
type Cursors struct {
	Trust    *int64 `json:"trust,omitempty"`
	Commands *int64 `json:"commands,omitempty"`
}

// GetCursors answers as soon as the cursors differ from what the caller has
// (If-None-Match), or with 304 after wait seconds.
var GetCursors = Endpoint[CursorsRequest, CursorsResponse]{Method: http.MethodGet, Path: "/agent/v1/cursors"}

// CursorsRequest says how long to wait, in seconds up to MaxWait, and what the
// caller has.
type CursorsRequest struct {
	WaitS int    `query:"wait" json:"-" limit:"0..60"` // seconds
	Have  string `header:"If-None-Match" json:"-"`     // the ETag of what the caller has
}

// Validate bounds the wait.
func (r CursorsRequest) Validate() error {
	if r.WaitS < 0 || r.WaitS > int(MaxWait) {
		return Errorf(Invalid, "wait must be 0 to %d seconds", MaxWait)
	}
	return nil
}

// CursorsResponse is the cursors document. Its ETag is of its content; a
// caller keeps the one that came with the answer, since a newer server may say
// more than the caller knows.
type CursorsResponse struct {
	Cursors
	Tag string `json:"-"`
}

// ETag names the content.
func (r CursorsResponse) ETag() string {
	if r.Tag != "" {
		return r.Tag
	}
	return etag(r)
}

// KeepETag takes the ETag of an answer.
func (r *CursorsResponse) KeepETag(tag string) { r.Tag = tag }

// Validate refuses a node without capacity.
func (r HeartbeatRequest) Validate() error {
	if r.CPUCores <= 0 || r.MemBytes <= 0 || r.DiskBytes <= 0 {
		return Errorf(Invalid, "cpu_cores, mem_bytes and disk_bytes must be above 0")
	}
	return nil
}

// UnmarshalJSON takes what fits; only the capacity can make it fail.
func (r *HeartbeatRequest) UnmarshalJSON(data []byte) error {
	type plain HeartbeatRequest
	dropped, err := eachMember(data, (*plain)(r), "cpu_cores", "mem_bytes", "disk_bytes")
	r.Dropped = dropped
	if r.Hello != nil {
		for _, name := range r.Hello.dropped {
			r.Dropped = append(r.Dropped, "hello."+name)
		}
	}
	return err
}

// UnmarshalJSON takes what fits.
func (h *Hello) UnmarshalJSON(data []byte) error {
	type plain Hello
	dropped, err := eachMember(data, (*plain)(h))
	if h.dropped = dropped; err != nil {
		return err
	}
	if h.Tier != nil && (*h.Tier < 0 || *h.Tier > int(TierManage)) {
		h.Tier, h.dropped = nil, append(h.dropped, "tier")
	}
	if len(h.Runtimes) > 8 {
		h.Runtimes, h.dropped = nil, append(h.dropped, "runtimes")
	}
	for _, text := range []*string{&h.BootID, &h.Hostname, &h.OS, &h.Arch, &h.Kernel} {
		*text = Cut(*text, 255)
	}
	h.Capabilities = capabilities(h.Capabilities)
	return nil
}

// capabilities keeps the first 32 well-formed names, each once.
func capabilities(names []string) (kept []string) {
	for _, name := range names {
		if len(kept) < 32 && nameOf(name, 40) && !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// eachMember decodes an object member by member into v, and returns the names
// of those that did not fit, of which nothing is taken. One of the strict ones
// is an error.
func eachMember(data []byte, v any, strict ...string) (dropped []string, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	into := reflect.ValueOf(v).Elem()
	before := reflect.New(into.Type()).Elem()
	for name, raw := range members {
		before.Set(into)
		one, err := json.Marshal(map[string]json.RawMessage{name: raw})
		if err == nil {
			err = json.Unmarshal(one, v)
		}
		if err != nil {
			into.Set(before) // what came before the part that does not fit was taken
		}
		if err != nil && slices.Contains(strict, name) {
			return nil, Errorf(Invalid, "%s does not fit", name).Because(err)
		}
		if err != nil {
			dropped = append(dropped, name)
		}
	}
	slices.Sort(dropped)
	return dropped, nil
}
