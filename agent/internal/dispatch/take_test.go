package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
)

var errNoAnswer = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}

// Field case: one bad command blocks the queue. What cannot be believed has no
// id: it is an event, is never acked or rejected, and never blocks the next.
func TestWhatCannotBeBelievedIsAnEvent(t *testing.T) {
	nested := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	change := func(do func(*api.CommandItem)) func(r *rig) json.RawMessage {
		return func(r *rig) json.RawMessage {
			var item api.CommandItem
			if err := json.Unmarshal(r.stopOf("cmd_bad", "a", "bad"), &item); err != nil {
				r.t.Fatal(err)
			}
			do(&item)
			text, err := json.Marshal(item)
			if err != nil {
				r.t.Fatal(err)
			}
			return text
		}
	}
	signed := func(document string) func(r *rig) json.RawMessage {
		return func(r *rig) json.RawMessage { return r.sign("node_1", document) }
	}
	raw := func(text string) func(r *rig) json.RawMessage {
		return func(*rig) json.RawMessage { return json.RawMessage(text) }
	}
	for name, item := range map[string]func(r *rig) json.RawMessage{
		"a number":         raw(`7`),
		"null":             raw(`null`),
		"empty":            raw(``),
		"half":             raw(`{"data": "`),
		"NULs":             raw("\x00\x00"),
		"a page":           raw(`<html>`),
		"deep":             raw(nested),
		"wrong types":      raw(`{"data": {}, "seq": "1", "signature": 7, "key": []}`),
		"forged seq":       change(func(i *api.CommandItem) { i.Seq++ }),
		"forged data":      change(func(i *api.CommandItem) { i.Data = strings.Replace(i.Data, "bad", "web", 1) }),
		"unknown key":      change(func(i *api.CommandItem) { i.Key = "k" }),
		"no signature":     change(func(i *api.CommandItem) { i.Signature = nil }),
		"seq 0":            change(func(i *api.CommandItem) { i.Seq = 0 }),
		"another document": change(func(i *api.CommandItem) { i.Data = `{}` }),
		"of another node": func(r *rig) json.RawMessage {
			return r.sign("node_2", `{"id": "cmd_bad", "kind": "stop", "expires_at": "2100-01-01T00:00:00Z"}`)
		},
		"of another type": func(r *rig) json.RawMessage {
			text, err := json.Marshal(r.signer.Sign(seal.TagTrust, "node_1", 7, []byte(`{"id": "cmd_bad"}`)))
			if err != nil {
				r.t.Fatal(err)
			}
			return text
		},
		"of another signer": func(r *rig) json.RawMessage {
			return newRig(r.t, "").stopOf("cmd_bad", "a", "bad")
		},
		"signed, no JSON":       signed(`stop`),
		"signed, null":          signed(`null`),
		"signed, no id":         signed(`{"kind": "stop"}`),
		"signed, endless id":    signed(`{"kind": "stop", "id": "` + strings.Repeat("x", 40_000) + `"}`),
		"signed, id is 7":       signed(`{"kind": "stop", "id": 7}`),
		"signed, expires soon":  signed(`{"kind": "stop", "id": "cmd_bad", "expires_at": "soon"}`),
		"signed, expires empty": signed(`{"kind": "stop", "id": "cmd_bad", "expires_at": ""}`),
		"signed, expires 0":     signed(`{"kind": "stop", "id": "cmd_bad", "expires_at": 0}`),
		"signed, deep":          signed(`{"kind": "stop", "id": "cmd_bad", "expires_at": "2100-01-01T00:00:00Z", "payload": ` + nested + `}`),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				bad := item(r)
				r.take(r.stopOf("cmd_1", "a", "before"), bad, r.stopOf("cmd_2", "a", "after"))
				r.Wait()
				r.saw("before", "after")
				r.noticed("command_not_verified")
				if e := r.entry("cmd_bad"); e != nil || !slices.Equal(r.asked, []string{"cmd_1", "cmd_2"}) {
					t.Errorf("it was taken for a command: %+v; asked was for %v", e, r.asked)
				}
			})
		})
	}
}

// What is verified and may not run is rejected, without an ack: it has never
// run.
func TestWhatMayNotRunIsRejectedWithoutAnAck(t *testing.T) {
	operate := int(api.TierOperate)
	stop := names("a", "bad")
	for name, c := range map[string]struct {
		kind, payload string
		tier          *int
		change        func(*api.Command)
		reason, words string
	}{
		"unknown kind":    {kind: "shell", payload: stop, reason: "invalid", words: `this agent has no kind "shell"`},
		"no kind":         {payload: stop, reason: "invalid"},
		"missing member":  {kind: "stop", payload: `{}`, reason: "invalid", words: "app_id"},
		"empty payload":   {kind: "stop", payload: `null`, reason: "invalid", words: "app_id"},
		"a list":          {kind: "stop", payload: `[]`, reason: "invalid", words: "not one of stop"},
		"wrong type":      {kind: "stop", payload: `{"app_id": 7, "app": "bad"}`, reason: "invalid", words: "not one of stop"},
		"broken rule":     {kind: "deploy", payload: strings.Replace(deployment("a", "bad"), `"x"`, `"a b"`, 1), reason: "invalid", words: "image"},
		"of another kind": {kind: "deploy", payload: stop, reason: "invalid", words: "deployment_id"},
		"tier too low":    {kind: "deploy", payload: deployment("a", "bad"), tier: &operate, reason: "tier_too_low", words: "installed with tier 1, and deploy needs 2"},
		"no expires_at":   {kind: "stop", payload: stop, change: func(c *api.Command) { c.ExpiresAt = time.Time{} }, reason: "invalid", words: "expires_at"},
		"300 KB":          {kind: "stop", payload: `{"app_id": "a", "app": "bad", "more": "` + strings.Repeat("x", 300_000) + `"}`, reason: "too_large", words: "262144"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.tier = c.tier
				r.restart()
				bad := r.command("cmd_bad", c.kind, c.payload)
				if c.change != nil {
					c.change(&bad)
				}
				r.take(r.item(bad), r.stopOf("cmd_2", "a", "after"))
				r.Wait()
				r.saw("after")
				result := r.ended("cmd_bad", api.OutcomeRejected, c.reason)
				if !strings.Contains(result.Error, c.words) || result.StartedAt != nil || result.Attempt != 0 {
					t.Errorf("it says %+v", result)
				}
				if !slices.Equal(r.asked, []string{"cmd_2"}) || r.done != 2 || len(r.events) != 0 {
					t.Errorf("asked was for %v, %d results, events %v", r.asked, r.done, r.events)
				}
				r.restart()
				r.take()
				r.Wait()
				r.saw("after")
			})
		})
	}
}

func TestDeepMembersThatNobodyKnowsAreIgnored(t *testing.T) {
	bubble(t, func(r *rig) {
		nested := strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)
		r.take(r.item(r.command("cmd_1", "stop", `{"app_id": "a", "app": "web", "of_a_newer_server": `+nested+`}`)))
		r.Wait()
		r.ended("cmd_1", api.OutcomeSucceeded, "")
	})
}

func TestRefusedAckNeverRuns(t *testing.T) {
	for _, code := range []api.Code{api.CommandExpired, api.CommandCanceled, api.CommandFinished, api.CommandLost, api.AckedElsewhere, api.NotFound} {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.answers(func(id string) error {
					if id == "cmd_1" {
						return api.Errorf(code, "no")
					}
					return nil
				})
				first := r.stopOf("cmd_1", "a", "refused")
				r.take(first, r.stopOf("cmd_2", "a", "after"))
				r.Wait()
				r.answers(func(string) error { return nil })
				r.take(first) // it comes again, and now the answer would be yes
				r.restart()
				r.take(first)
				r.Wait()
				r.saw("after")
				r.at("cmd_1", journal.Refused)
				if e := r.entry("cmd_1"); e.Reason != string(code) || e.Result != nil || !slices.Equal(r.asked, []string{"cmd_1", "cmd_2"}) {
					t.Errorf("%+v; asked was for %v", e, r.asked)
				}
			})
		})
	}
}

// Only our server's no is a no. Until there is one the command waits, and so
// does what comes after it.
func TestUnansweredAckIsAskedAgain(t *testing.T) {
	for name, failure := range map[string]error{
		"network":     errNoAnswer,
		"weather":     &client.Weather{Status: 403},
		"unavailable": api.Errorf(api.Unavailable, "later"),
		"slow down":   api.Errorf(api.NodeUnknown, "restored?"),
		"revoked":     api.Errorf(api.NodeRevoked, "out"),
		"newer":       api.Errorf("of_a_newer_server", "what?"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.answers(func(string) error { return failure })
				items := []json.RawMessage{r.stopOf("cmd_1", "a", "one"), r.stopOf("cmd_2", "b", "two")}
				if err := r.Take(r.ctx, items); !errors.Is(err, failure) {
					t.Errorf("got %v", err)
				}
				r.restart()
				r.Wait()
				r.saw()
				r.at("cmd_1", journal.Received)
				r.at("cmd_2", journal.Received)
				if !slices.Equal(r.asked, []string{"cmd_1"}) {
					t.Errorf("nobody answers, and asked was for %v", r.asked)
				}
				r.answers(func(string) error { return nil })
				r.take() // the server does not list what it knows to be acked
				r.Wait()
				r.ended("cmd_1", api.OutcomeSucceeded, "")
				r.ended("cmd_2", api.OutcomeSucceeded, "")
			})
		})
	}
}

// A server that fails at one command holds up that one's lane and no other.
func TestServerThatFailsAtOneCommand(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(func(id string) error {
			if id == "cmd_1" {
				return api.Errorf(api.Internal, "its log says why")
			}
			return nil
		})
		err := r.Take(r.ctx, []json.RawMessage{
			r.stopOf("cmd_1", "a", "first"), r.stopOf("cmd_2", "b", "other"), r.stopOf("cmd_3", "a", "second"),
		})
		if !errors.Is(err, api.Internal) {
			t.Errorf("nobody is told to try again: %v", err)
		}
		r.Wait()
		r.saw("other")
		r.answers(func(string) error { return nil })
		r.take()
		r.Wait()
		r.saw("other", "first", "second")
	})
}

func TestRedeliveredCommandDoesNotRunAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		item := r.stopOf("cmd_1", "a", "web")
		r.take(item, item)
		r.take(item)
		r.Wait()
		r.take(item)
		r.restart()
		r.take(item, item)
		r.Wait()
		r.saw("web")
		r.ended("cmd_1", api.OutcomeSucceeded, "")
		if r.done != 1 || len(r.events) != 0 {
			t.Errorf("%d results, events %v", r.done, r.events)
		}
		// A server that was restored from a backup sends what has ended long ago:
		// it gets the result that it lost.
		if err := r.journal.Confirm("cmd_1"); err != nil {
			t.Fatal(err)
		}
		r.take(item)
		r.Wait()
		r.saw("web")
		r.at("cmd_1", journal.Finished)
		if r.done != 2 {
			t.Errorf("nobody was told to send the result again")
		}
	})
}

func TestSameIDWithOtherContentIsRefused(t *testing.T) {
	for _, step := range []string{"running", "finished", "confirmed"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(r *rig) {
				if step == "running" {
					r.handle = r.slowly
				}
				r.take(r.stopOf("cmd_1", "a", "web"))
				if step != "running" {
					r.Wait()
				}
				if step == "confirmed" {
					if err := r.journal.Confirm("cmd_1"); err != nil {
						t.Fatal(err)
					}
				}
				before := r.entry("cmd_1").Step
				r.take(r.stopOf("cmd_1", "a", "other"), r.stopOf("cmd_2", "b", "good"))
				r.noticed("command_differs", "cmd_1", "was refused")
				if step != "running" {
					r.at("cmd_1", before)
				}
				r.Wait()
				r.saw("web", "good")
			})
		})
	}
}

func TestMissingKindsAreNamed(t *testing.T) {
	bubble(t, func(r *rig) {
		if missing := r.Missing(); len(missing) != 0 {
			t.Errorf("nothing carries out %v", missing)
		}
		r.without = "stop"
		r.restart()
		if missing := r.Missing(); fmt.Sprint(missing) != "[stop]" {
			t.Errorf("missing are %v", missing)
		}
	})
}
