package command_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

func wantCode(t *testing.T, what string, err error, code api.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: want %s, got %v", what, code, err)
	}
}

// read verifies what a fetch answered, as an agent does.
func read(t *testing.T, a *servertest.Agent, res api.CommandsResponse) (items []api.CommandItem, commands []api.Command) {
	t.Helper()
	signer := a.Authority.Signer()
	keys := seal.Keys{signer.ID: signer.Private.Public().(ed25519.PublicKey)}
	for _, raw := range res.Commands {
		var item api.CommandItem
		var c api.Command
		if err := json.Unmarshal(raw, &item); err != nil {
			t.Fatal(err)
		}
		if err := seal.Verify(item.Envelope, seal.TagCommand, a.ID, keys); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(item.Data), &c); err != nil {
			t.Fatal(err)
		}
		items, commands = append(items, item), append(commands, c)
	}
	return items, commands
}

// padded is the payload of a deploy that is about size bytes long.
func padded(with string, size int) json.RawMessage {
	text, err := json.Marshal(api.DeployPayload{
		DeploymentID: "dep_1", AppID: "app_1", App: "web", Revision: 1,
		AppSpec: api.AppSpec{Image: "web:1", Env: map[string]string{"PAD": strings.Repeat("x", 10)}},
	})
	if err != nil {
		panic(err)
	}
	return json.RawMessage(strings.Replace(string(text), strings.Repeat("x", 10), strings.Repeat(with, max(size-len(text)+10, 0)/len(with)), 1))
}

func TestFetchDeliversInOrder(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a, other := f.Join(t, "web"), f.Join(t, "other")
		var want []string
		for range 3 {
			want = append(want, a.Stop(t).ID)
			other.Stop(t)
		}
		startBy := f.Clock.Now().Add(time.Hour)
		last := a.Send(t, api.SendCommandRequest{Kind: "deploy", Payload: padded("x", 0), ExpiresInS: 60, StartBy: &startBy})
		want = append(want, last.ID)
		for range 2 { // a redelivery is the same, to the byte
			res := a.Fetch(t)
			items, commands := read(t, a, res)
			var got []string
			for i, c := range commands {
				got = append(got, c.ID)
				if items[i].State != api.Delivered || i > 0 && items[i].Seq <= items[i-1].Seq {
					t.Errorf("%d: %s, seq %d", i, items[i].State, items[i].Seq)
				}
			}
			if !slices.Equal(got, want) || res.More {
				t.Fatalf("want %v, got %v, more %v", want, got, res.More)
			}
			c := commands[3]
			if !c.ExpiresAt.Equal(f.Clock.Now().Add(time.Minute)) || !c.StartBy.Equal(startBy) || !c.CreatedAt.Equal(f.Clock.Now()) {
				t.Errorf("its times are %v, %v, %v", c.CreatedAt, c.ExpiresAt, c.StartBy)
			}
			if !commands[0].ExpiresAt.Equal(f.Clock.Now().Add(api.CommandLife)) || commands[0].StartBy != nil {
				t.Errorf("without words: %v, %v", commands[0].ExpiresAt, commands[0].StartBy)
			}
		}
		for _, id := range want { // durable: another server sees it too
			if s := f.Restarted().State(t, id); s.State != api.Delivered || s.DeliveredAt == nil {
				t.Errorf("%s is %s", id, s.State)
			}
		}
		if n := f.Count(t, `FROM events WHERE kind = 'command_delivered'`); n != 4 {
			t.Errorf("%d deliveries were recorded", n)
		}
	})
}

func TestFetchedAgainIsTheSameToTheByte(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	a.Send(t, api.SendCommandRequest{Kind: "deploy", Payload: json.RawMessage(` { "app" : "web",  "app_id":"app_1", "deployment_id": "dep_1",
		"revision": 1, "image": "web:1", "env": {"x": "<&>\u2028"} , "resources": {"cpu_cores": 1.50} } `)})
	first, _ := read(t, a, a.Fetch(t))
	f.Clock.Move(time.Minute)
	again, _ := read(t, a.On(f.Restarted()), a.On(f.Restarted()).Fetch(t))
	if first[0].Data != again[0].Data || first[0].Seq != again[0].Seq {
		t.Errorf("first %s, then %s", first[0].Data, again[0].Data)
	}
}

func TestFetchPages(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		var all []string
		for range 60 {
			all = append(all, a.Stop(t).ID)
		}
		var got []string
		after := int64(0)
		for page, want := range []int{50, 10, 0} {
			res, err := f.Commands.Fetch(a.Context(t.Context()), api.CommandsRequest{After: after, Limit: 1000})
			items, commands := read(t, a, res)
			if err != nil || len(items) != want || res.More != (page == 0) {
				t.Fatalf("page %d: %d commands, more %v, %v", page, len(items), res.More, err)
			}
			for _, c := range commands {
				got = append(got, c.ID)
			}
			if want > 0 {
				after = items[want-1].Seq
			}
			if n := f.Count(t, `FROM commands WHERE state = 'delivered'`); n != len(got) {
				t.Errorf("page %d: %d are delivered, %d were returned", page, n, len(got))
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("want %v, got %v", all, got)
		}
		res, err := f.Commands.Fetch(a.Context(t.Context()), api.CommandsRequest{Limit: 1})
		if err != nil || len(res.Commands) != 1 || !res.More {
			t.Errorf("limit 1: %d, more %v, %v", len(res.Commands), res.More, err)
		}
	})
}

// An answer stays within what an agent reads, whatever is in the queue, and
// nothing in the queue can block what is behind it.
func TestFetchStaysWithinOneAnswer(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		sent := 0
		for with, size := range map[string]int{
			"x": api.MaxDocument, "<": api.MaxDocument, `\"`: api.MaxDocument, "\u2028": 200_000,
		} {
			_, err := f.Commands.Send(t.Context(), api.SendCommandRequest{Node: a.ID, Kind: "deploy", Payload: padded(with, size)})
			if err == nil {
				sent++
			} else if !errors.Is(err, api.TooLarge) || with == "x" {
				t.Errorf("%d bytes of %q: %v", size, with, err)
			}
		}
		got := 0
		for after := int64(0); ; {
			res, err := f.Commands.Fetch(a.Context(t.Context()), api.CommandsRequest{After: after})
			if err != nil {
				t.Fatal(err)
			}
			body, err := json.Marshal(res)
			if err != nil || len(body) >= api.MaxBody {
				t.Fatalf("an answer of %d bytes, %v", len(body), err)
			}
			items, _ := read(t, a, res)
			if len(items) == 0 {
				break
			}
			got, after = got+len(items), items[len(items)-1].Seq
			if n := f.Count(t, `FROM commands WHERE state = 'delivered'`); n != got {
				t.Errorf("%d are delivered, %d were returned", n, got)
			}
		}
		if got != sent || sent < 3 {
			t.Errorf("%d of %d arrived", got, sent)
		}
	})
}

func TestFetchLeavesOutWhatHasExpired(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		a.Stop(t)
		f.Clock.Move(api.CommandLife - time.Millisecond)
		later := a.Stop(t)
		if n := len(a.Fetch(t).Commands); n != 2 {
			t.Errorf("%d before the end", n)
		}
		f.Clock.Move(time.Millisecond)
		if _, commands := read(t, a, a.Fetch(t)); len(commands) != 1 || commands[0].ID != later.ID {
			t.Errorf("at the end: %v", commands)
		}
	})
}

func TestSeqRises(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		last := int64(0)
		rises := func(what string) {
			t.Helper()
			seq := a.Stop(t).Seq
			if seq <= last || seq < f.Clock.Now().UnixMilli() {
				t.Errorf("%s: %d after %d at %d", what, seq, last, f.Clock.Now().UnixMilli())
			}
			last = seq
		}
		for range 20 {
			rises("in one millisecond")
		}
		f.Clock.Move(-time.Hour)
		rises("after the clock went back")
		f.Clock.Move(2 * time.Hour)
		rises("later")
		if last != f.Clock.Now().UnixMilli() {
			t.Errorf("a number is the time where it can be: %d", last)
		}
		// A restored database knows fewer numbers than it gave out.
		f.Do(t, `UPDATE nodes SET command_seq = 0`)
		f.Clock.Move(time.Millisecond)
		rises("after a restore")
	})
}

func TestCommandsThatAreRefused(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		operate, none := int(api.TierOperate), int(api.TierObserve)
		a := f.Join(t, "web")
		low := f.JoinAs(t, api.CreateJoinTokenRequest{Name: "low"}, api.JoinRequest{Tier: &operate})
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "none"}, api.JoinRequest{Tier: &none})
		gone := f.Join(t, "gone")
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "gone"}); err != nil {
			t.Fatal(err)
		}
		f.Token(t, api.CreateJoinTokenRequest{Name: "pending"})
		stop := json.RawMessage(`{"app_id": "app_1", "app": "web"}`)
		for _, c := range []struct {
			what, node, kind string
			payload          json.RawMessage
			want             api.Code
		}{
			{"no such kind", a.ID, "shell", json.RawMessage(`{}`), api.Invalid},
			{"no payload", a.ID, "stop", nil, api.Invalid},
			{"null", a.ID, "stop", json.RawMessage(`null`), api.Invalid},
			{"an incomplete payload", a.ID, "stop", json.RawMessage(`{"app": "web"}`), api.Invalid},
			{"a member of a wrong type", a.ID, "stop", json.RawMessage(`{"app_id": 7, "app": "web"}`), api.Invalid},
			{"a payload that is too large", a.ID, "deploy", padded("x", api.MaxDocument+1), api.TooLarge},
			{"no such node", "nobody", "stop", stop, api.NotFound},
			{"a revoked node", gone.ID, "stop", stop, api.NodeInactive},
			{"a revoked node's name", "gone", "stop", stop, api.NodeInactive},
			{"a pending node", "pending", "stop", stop, api.NodeInactive},
			{"a tier too low", "low", "deploy", padded("x", 0), api.TierTooLow},
			{"no tier", "none", "stop", stop, api.TierTooLow},
		} {
			_, err := f.Commands.Send(t.Context(), api.SendCommandRequest{Node: c.node, Kind: c.kind, Payload: c.payload})
			wantCode(t, c.what, err, c.want)
		}
		if n := f.Count(t, `FROM commands`) + f.Count(t, `FROM events WHERE kind = 'command_queued'`); n != 0 {
			t.Errorf("%d traces of refused commands", n)
		}
		low.Stop(t)
		f.Commands.Send(t.Context(), api.SendCommandRequest{Node: "web", Kind: "deploy", Payload: padded("x", 0)})
		if n := f.Count(t, `FROM commands`); n != 2 {
			t.Errorf("%d of 2 good ones are there", n)
		}
	})
}

func TestLists(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a, b := f.Join(t, "a"), f.Join(t, "b")
		first, second, third := a.Stop(t), b.Stop(t), a.Stop(t)
		a.Run(t, first.ID, api.Result{Status: api.OutcomeSucceeded, Output: json.RawMessage(`{"deployment_ids": []}`)})
		for _, c := range []struct {
			req  api.ListCommandsRequest
			want []string
		}{
			{api.ListCommandsRequest{}, []string{third.ID, second.ID, first.ID}},
			{api.ListCommandsRequest{Node: "a"}, []string{third.ID, first.ID}},
			{api.ListCommandsRequest{Node: b.ID}, []string{second.ID}},
			{api.ListCommandsRequest{State: api.Succeeded}, []string{first.ID}},
			{api.ListCommandsRequest{App: "app_1", State: api.Queued}, []string{second.ID}},
			{api.ListCommandsRequest{App: "nothing"}, nil},
			{api.ListCommandsRequest{Cursor: api.Cursor{Limit: 2}}, []string{third.ID, second.ID}},
			{api.ListCommandsRequest{Cursor: api.Cursor{Limit: 2, After: second.ID}}, []string{first.ID}},
		} {
			page, err := f.Commands.List(t.Context(), c.req)
			var got []string
			for _, item := range page.Items {
				got = append(got, item.ID)
			}
			if err != nil || !slices.Equal(got, c.want) || (page.Next != "") != (c.req.Limit == 2 && c.req.After == "") {
				t.Errorf("%+v: want %v, got %v, next %q, %v", c.req, c.want, got, page.Next, err)
			}
		}
		if _, err := f.Commands.List(t.Context(), api.ListCommandsRequest{Node: "nobody"}); !errors.Is(err, api.NotFound) {
			t.Errorf("the list of no node: %v", err)
		}
		if s := f.State(t, first.ID); string(s.Result.Output) != `{"deployment_ids":[]}` || s.Result.Status != api.OutcomeSucceeded {
			t.Errorf("the result is shown as %+v", s.Result)
		}
	})
}

// Nothing that a list or a command shows may pass what one answer holds.
func TestListsStayWithinOneAnswer(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	want := 12
	for i := range want {
		payload := strings.Replace(string(padded("x", 200_000)), "dep_1", fmt.Sprintf("dep_%d", i), 1)
		a.Send(t, api.SendCommandRequest{Kind: "deploy", Payload: json.RawMessage(payload)})
	}
	got, after := 0, ""
	for range want + 1 {
		page, err := f.Commands.List(t.Context(), api.ListCommandsRequest{Cursor: api.Cursor{After: after}})
		if err != nil {
			t.Fatal(err)
		}
		if body, err := json.Marshal(page); err != nil || len(body) > api.MaxBody {
			t.Errorf("an answer of %d bytes, %v", len(body), err)
		}
		got, after = got+len(page.Items), page.Next
		if after == "" {
			break
		}
	}
	if got != want {
		t.Errorf("%d of %d were listed", got, want)
	}
}
