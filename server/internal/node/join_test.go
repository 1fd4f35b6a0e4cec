package node_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

func join(t *testing.T, f *servertest.Fleet, token string, key ed25519.PrivateKey) (api.JoinResponse, error) {
	t.Helper()
	return f.Nodes.Join(t.Context(), api.JoinRequest{Token: token, CSR: servertest.CSR(t, key), Hostname: "host"})
}

// wantCode fails where err is not the verdict code.
func wantCode(t *testing.T, what string, err error, code api.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: want %s, got %v", what, code, err)
	}
}

// race runs do n times at once and counts how each ended, "" for well.
func race(n int, do func(i int) error) map[api.Code]int {
	ends := map[api.Code]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			err := do(i)
			var code api.Code
			if err != nil {
				code = api.AsError(err).Code
			}
			mu.Lock()
			defer mu.Unlock()
			ends[code]++
		})
	}
	close(start)
	wg.Wait()
	return ends
}

func TestOneOfManyJoinsWinsAToken(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		token := f.Token(t, api.CreateJoinTokenRequest{}).Token
		requests := make([]api.JoinRequest, 50)
		for i := range requests {
			requests[i] = api.JoinRequest{Token: token, CSR: servertest.CSR(t, servertest.Key(t))}
		}
		ends := race(len(requests), func(i int) error {
			_, err := f.Nodes.Join(t.Context(), requests[i])
			return err
		})
		if want := (map[api.Code]int{"": 1, api.TokenUsed: 49}); !maps.Equal(ends, want) {
			t.Errorf("want %v, got %v", want, ends)
		}
		if n := f.Count(t, `FROM nodes WHERE status = 'active'`); n != 1 {
			t.Errorf("%d nodes are active", n)
		}
	})
}

func TestOneOfManyTokensWinsAMachine(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		requests := make([]api.JoinRequest, 50)
		for i := range requests {
			requests[i] = api.JoinRequest{
				Token: f.Token(t, api.CreateJoinTokenRequest{}).Token, CSR: servertest.CSR(t, servertest.Key(t)),
				MachineID: strings.Repeat("a", 64), Hostname: "clone",
			}
		}
		ends := race(len(requests), func(i int) error {
			_, err := f.Nodes.Join(t.Context(), requests[i])
			if err != nil && !strings.Contains(err.Error(), "clone") {
				t.Errorf("this does not name the node: %v", err)
			}
			return err
		})
		if want := (map[api.Code]int{"": 1, api.MachineEnrolled: 49}); !maps.Equal(ends, want) {
			t.Errorf("want %v, got %v", want, ends)
		}
		if unused := f.Count(t, `FROM join_tokens WHERE used_at = 0`); unused != 49 {
			t.Errorf("%d tokens are left, want 49", unused)
		}
	})
}

// Machines out of one image have one hostname. That is no reason to refuse any.
func TestManyMachinesOfOneHostname(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		requests := make([]api.JoinRequest, 30)
		for i := range requests {
			requests[i] = api.JoinRequest{
				Token: f.Token(t, api.CreateJoinTokenRequest{}).Token, CSR: servertest.CSR(t, servertest.Key(t)),
				MachineID: fmt.Sprintf("%064d", i), Hostname: "localhost.localdomain",
			}
		}
		var mu sync.Mutex
		names := map[string]bool{}
		ends := race(len(requests), func(i int) error {
			res, err := f.Nodes.Join(t.Context(), requests[i])
			mu.Lock()
			defer mu.Unlock()
			names[res.Name] = true
			return err
		})
		if ends[""] != len(requests) || len(names) != len(requests) || !names["localhost"] {
			t.Errorf("got %v and the names %v", ends, slices.Collect(maps.Keys(names)))
		}
	})
}

func TestRepeatedJoin(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		token, key := f.Token(t, api.CreateJoinTokenRequest{}).Token, servertest.Key(t)
		first, err := join(t, f, token, key)
		if err != nil {
			t.Fatal(err)
		}
		f.Clock.Move(api.JoinRepeat)
		again, err := join(t, f, token, key)
		if err != nil || again.NodeID != first.NodeID || again.Name != first.Name {
			t.Fatalf("the repeat: %+v, %v", again, err)
		}
		c, err := seal.ParseCertificate(again.Certificate)
		if err != nil || !key.Public().(ed25519.PublicKey).Equal(c.PublicKey) || c.Subject.CommonName != first.NodeID {
			t.Errorf("the certificate is for %v, %v", c.Subject, err)
		}
		if _, _, err := seal.OpenTrust(again.Trust, first.NodeID, f.Authority.Pin()); err != nil {
			t.Errorf("the trust document: %v", err)
		}
		_, err = join(t, f, token, servertest.Key(t))
		wantCode(t, "another key", err, api.TokenUsed)
		f.Clock.Move(time.Millisecond)
		_, err = join(t, f, token, key)
		wantCode(t, "the same key after ten minutes", err, api.TokenUsed)
		if got := f.EventsOf(t, first.NodeID); !slices.Equal(got, []string{"node_joined", "node_join_repeated"}) {
			t.Errorf("events %v", got)
		}
	})
}

func TestRepeatOfAJoinByARevokedNode(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		token, key := f.Token(t, api.CreateJoinTokenRequest{Name: "web"}).Token, servertest.Key(t)
		if _, err := join(t, f, token, key); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "web"}); err != nil {
			t.Fatal(err)
		}
		_, err := join(t, f, token, key)
		wantCode(t, "a repeat after the revocation", err, api.NodeRevoked)
	})
}

func TestRefusedJoinSpendsNothing(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		machine := strings.Repeat("b", 64)
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "first"}, api.JoinRequest{MachineID: machine})
		token := f.Token(t, api.CreateJoinTokenRequest{Name: "second"})
		good := servertest.CSR(t, servertest.Key(t))
		cut := good[:len(good)/2]
		for name, c := range map[string]struct {
			req  api.JoinRequest
			want api.Code
		}{
			"no PEM":      {api.JoinRequest{CSR: "x"}, api.CSRInvalid},
			"half a PEM":  {api.JoinRequest{CSR: cut}, api.CSRInvalid},
			"two":         {api.JoinRequest{CSR: good + good}, api.CSRInvalid},
			"RSA":         {api.JoinRequest{CSR: servertest.CSR(t, rsaKey)}, api.CSRInvalid},
			"a duplicate": {api.JoinRequest{CSR: good, MachineID: machine}, api.MachineEnrolled},
		} {
			c.req.Token = token.Token
			_, err := f.Nodes.Join(t.Context(), c.req)
			wantCode(t, name, err, c.want)
		}
		res, err := f.Nodes.Join(t.Context(), api.JoinRequest{Token: token.Token, CSR: good, MachineID: strings.Repeat("c", 64)})
		if err != nil || res.NodeID != token.NodeID || res.Name != "second" || res.Status != api.StatusActive {
			t.Errorf("a good join after the refusals: %+v, %v", res, err)
		}
	})
}

func TestDuplicateMachineIsNamed(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		machine := strings.Repeat("d", 64)
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "original"}, api.JoinRequest{MachineID: machine})
		token := f.Token(t, api.CreateJoinTokenRequest{Name: "clone"})
		req := api.JoinRequest{Token: token.Token, CSR: servertest.CSR(t, servertest.Key(t)), MachineID: machine}
		_, err := f.Nodes.Join(t.Context(), req)
		wantCode(t, "a clone", err, api.MachineEnrolled)
		if err == nil || !strings.Contains(err.Error(), "original") || !strings.Contains(err.Error(), "beckon node revoke original") {
			t.Errorf("the joiner is not told what to do: %v", err)
		}
		page, err := f.Events.List(t.Context(), api.ListEventsRequest{Node: token.NodeID})
		if err != nil || len(page.Items) != 2 || page.Items[1].Kind != "machine_already_enrolled" || !strings.Contains(page.Items[1].Message, "original") {
			t.Errorf("operators see %+v, %v", page.Items, err)
		}
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "original"}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Nodes.Join(t.Context(), req); err != nil {
			t.Errorf("after the advice was followed: %v", err)
		}
	})
}

func TestMachineReuse(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		machine := strings.Repeat("e", 64)
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "one"}, api.JoinRequest{MachineID: machine})
		for _, name := range []string{"two", "three"} {
			f.JoinAs(t, api.CreateJoinTokenRequest{Name: name, AllowMachineReuse: true}, api.JoinRequest{MachineID: machine})
		}
		_, err := f.Nodes.Join(t.Context(), api.JoinRequest{
			Token: f.Token(t, api.CreateJoinTokenRequest{}).Token, CSR: servertest.CSR(t, servertest.Key(t)), MachineID: machine,
		})
		wantCode(t, "a token that does not allow it", err, api.MachineEnrolled)
	})
}

func TestReplaces(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		machine := strings.Repeat("f", 64)
		old := f.JoinAs(t, api.CreateJoinTokenRequest{Name: "web-1"}, api.JoinRequest{MachineID: machine})
		waiting, taken := old.Stop(t), old.Stop(t)
		old.Fetch(t)
		if err := old.Ack(t, taken.ID); err != nil {
			t.Fatal(err)
		}
		token := f.Token(t, api.CreateJoinTokenRequest{Replaces: "web-1"})
		if got := old.Beat(t, api.HeartbeatRequest{}); got.NextS == 0 {
			t.Errorf("the token alone must change nothing: %+v", got)
		}
		res, err := f.Nodes.Join(t.Context(), api.JoinRequest{
			Token: token.Token, CSR: servertest.CSR(t, servertest.Key(t)), MachineID: machine, Hostname: "reimaged",
		})
		if err != nil || res.Name != "web-1" || res.NodeID == old.ID {
			t.Fatalf("the join: %+v, %v", res, err)
		}
		wantCode(t, "the old node", f.Nodes.Check(t.Context(), old.ID), api.NodeRevoked)
		if a, b := f.State(t, waiting.ID), f.State(t, taken.ID); a.State != api.Canceled || !a.NeverRan || b.State != api.Lost || b.NeverRan {
			t.Errorf("its commands are %s and %s", a.State, b.State)
		}
		if n, err := f.Nodes.Get(t.Context(), api.NodeRequest{Node: "web-1"}); err != nil || n.ID != res.NodeID {
			t.Errorf("web-1 is %s, %v", n.ID, err)
		}
		_, err = f.Nodes.CreateToken(t.Context(), api.CreateJoinTokenRequest{Replaces: old.ID})
		wantCode(t, "to replace what is revoked", err, api.NodeInactive)
		_, err = f.Nodes.CreateToken(t.Context(), api.CreateJoinTokenRequest{Replaces: "nobody"})
		wantCode(t, "to replace nobody", err, api.NotFound)
	})
}

// A refused join must not revoke the node that it would have replaced.
func TestRefusedReplacementRevokesNothing(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		old := f.Join(t, "web-1")
		machine := strings.Repeat("9", 64)
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "other"}, api.JoinRequest{MachineID: machine})
		_, err := f.Nodes.Join(t.Context(), api.JoinRequest{
			Token: f.Token(t, api.CreateJoinTokenRequest{Replaces: "web-1"}).Token, CSR: servertest.CSR(t, servertest.Key(t)), MachineID: machine,
		})
		wantCode(t, "the machine of another node", err, api.MachineEnrolled)
		if err := f.Nodes.Check(t.Context(), old.ID); err != nil {
			t.Errorf("web-1: %v", err)
		}
	})
}

func TestPriorNodeStandsForAMachineWithoutID(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		live := f.Join(t, "live")
		req := api.JoinRequest{CSR: servertest.CSR(t, servertest.Key(t)), PriorNodeID: live.ID}
		req.Token = f.Token(t, api.CreateJoinTokenRequest{}).Token
		_, err := f.Nodes.Join(t.Context(), req)
		wantCode(t, "no machine id, a live prior node", err, api.MachineEnrolled)
		req.MachineID = strings.Repeat("8", 64)
		if _, err := f.Nodes.Join(t.Context(), req); err != nil {
			t.Errorf("with a machine id of its own: %v", err)
		}
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: live.ID}); err != nil {
			t.Fatal(err)
		}
		f.JoinAs(t, api.CreateJoinTokenRequest{}, api.JoinRequest{PriorNodeID: live.ID})
		f.JoinAs(t, api.CreateJoinTokenRequest{}, api.JoinRequest{PriorNodeID: "node_of_another_cluster"})
		f.JoinAs(t, api.CreateJoinTokenRequest{}, api.JoinRequest{})
	})
}
