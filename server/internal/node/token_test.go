package node_test

import (
	"crypto/ed25519"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

func TestTokensThatAreNoGood(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		_, err := join(t, f, "bkn_join_guessed", servertest.Key(t))
		wantCode(t, "unknown", err, api.TokenInvalid)

		revoked := f.Token(t, api.CreateJoinTokenRequest{})
		if _, err := f.Nodes.RevokeToken(t.Context(), api.RevokeJoinTokenRequest{ID: revoked.ID}); err != nil {
			t.Fatal(err)
		}
		_, err = join(t, f, revoked.Token, servertest.Key(t))
		wantCode(t, "revoked", err, api.TokenInvalid)

		expires := f.Token(t, api.CreateJoinTokenRequest{ExpiresInS: 60})
		lasts := f.Token(t, api.CreateJoinTokenRequest{ExpiresInS: 60})
		f.Clock.Move(time.Minute - time.Millisecond)
		if _, err := join(t, f, lasts.Token, servertest.Key(t)); err != nil {
			t.Errorf("a millisecond before its end: %v", err)
		}
		f.Clock.Move(time.Millisecond)
		_, err = join(t, f, expires.Token, servertest.Key(t))
		wantCode(t, "expired", err, api.TokenExpired)
	})
}

func TestNames(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		long := strings.Repeat("x", 60)
		for _, c := range []struct{ asked, hostname, want string }{
			{"", "web-7.example.com", "web-7"},
			{"", "WEB_8", "web-8"},
			{"", "web-7", "web-7-*"}, // taken
			{"", "", "node-*"},
			{"", ".local", "node-*"},
			{"", "---", "node-*"},
			{"", "日本", "node-*"},
			{"", "größe", "gr--e"},
			{"", "a\x01b\n", "a-b"},
			{"", long, long[:40]},
			{"", long, long[:31] + "-*"},
			{"chosen", "host", "chosen"},
			{"pending-jobs", "host", "pending-jobs"}, // looks like a name nobody chose
			{"", "chosen", "chosen-*"},
			{"", "10.0.0.1", "10"},
		} {
			a := f.JoinAs(t, api.CreateJoinTokenRequest{Name: c.asked}, api.JoinRequest{Hostname: c.hostname})
			if want := strings.Replace(c.want, "*", a.ID[len(a.ID)-8:], 1); a.Name != want || !api.ValidName(a.Name) {
				t.Errorf("asked %q, hostname %q: want %q, got %q", c.asked, c.hostname, want, a.Name)
			}
		}
		_, err := f.Nodes.CreateToken(t.Context(), api.CreateJoinTokenRequest{Name: "chosen"})
		wantCode(t, "a name that is taken", err, api.NameTaken)
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "chosen"}); err != nil {
			t.Fatal(err)
		}
		f.Join(t, "chosen")
	})
}

func TestLabelsOfTokenWin(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.JoinAs(t, api.CreateJoinTokenRequest{Labels: api.Labels{"env": "prod", "rack": "7"}},
			api.JoinRequest{Labels: api.Labels{"env": "mine", "disk": "ssd"}})
		n, err := f.Nodes.Get(t.Context(), api.NodeRequest{Node: a.ID})
		if want := (api.Labels{"env": "prod", "rack": "7", "disk": "ssd"}); err != nil || !maps.Equal(n.Labels, want) {
			t.Errorf("want %v, got %v, %v", want, n.Labels, err)
		}
	})
}

func TestPendingNodesGoWithTheirTokens(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		revoked := f.Token(t, api.CreateJoinTokenRequest{Name: "revoked"})
		expired := f.Token(t, api.CreateJoinTokenRequest{Name: "expired", ExpiresInS: 60})
		lasting := f.Token(t, api.CreateJoinTokenRequest{Name: "lasting"})
		used := f.Join(t, "used")
		n, err := f.Nodes.Get(t.Context(), api.NodeRequest{Node: "lasting"})
		if err != nil || n.Status != api.StatusPending || n.Presence != api.PresenceUnknown {
			t.Errorf("before its join: %+v, %v", n, err)
		}
		for range 2 { // a repeat says the same
			token, err := f.Nodes.RevokeToken(t.Context(), api.RevokeJoinTokenRequest{ID: revoked.ID})
			if err != nil || token.State != api.TokenStateRevoked {
				t.Fatalf("revoke: %+v, %v", token, err)
			}
		}
		f.Clock.Move(time.Minute)
		for range 2 {
			if err := f.Nodes.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		page, err := f.Nodes.List(t.Context(), api.ListNodesRequest{})
		names := []string{}
		for _, n := range page.Items {
			names = append(names, n.Name)
		}
		if err != nil || !slices.Equal(names, []string{"lasting", "used"}) {
			t.Errorf("left are %v, %v", names, err)
		}
		states := map[string]api.JoinTokenState{}
		tokens, err := f.Nodes.ListTokens(t.Context(), api.ListJoinTokensRequest{})
		for _, token := range tokens.Items {
			states[token.NodeID] = token.State
		}
		want := map[string]api.JoinTokenState{
			revoked.NodeID: api.TokenStateRevoked, expired.NodeID: api.TokenStateExpired,
			lasting.NodeID: api.TokenStateUnused, used.ID: api.TokenStateUsed,
		}
		if err != nil || !maps.Equal(states, want) {
			t.Errorf("want %v, got %v, %v", want, states, err)
		}
		for _, token := range tokens.Items {
			if token.State == api.TokenStateUsed {
				_, err := f.Nodes.RevokeToken(t.Context(), api.RevokeJoinTokenRequest{ID: token.ID})
				wantCode(t, "revoke a used token", err, api.TokenUsed)
			}
		}
		_, err = f.Nodes.RevokeToken(t.Context(), api.RevokeJoinTokenRequest{ID: "jtk_none"})
		wantCode(t, "revoke no token", err, api.NotFound)
	})
}

func TestRevokedPendingNodeTakesItsTokenAlong(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		token := f.Token(t, api.CreateJoinTokenRequest{Name: "web"})
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "web"}); err != nil {
			t.Fatal(err)
		}
		_, err := join(t, f, token.Token, servertest.Key(t))
		wantCode(t, "a join by it", err, api.TokenInvalid)
	})
}

func TestRenewGivesACertificateForTheNewKey(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a, key := f.Join(t, "web"), servertest.Key(t)
		f.Clock.Move(12 * time.Hour)
		res, err := f.Nodes.Renew(a.Context(t.Context()), api.RenewRequest{CSR: servertest.CSR(t, key)})
		if err != nil {
			t.Fatal(err)
		}
		c, err := seal.ParseCertificate(res.Certificate)
		if err != nil || c.Subject.CommonName != a.ID || !key.Public().(ed25519.PublicKey).Equal(c.PublicKey) {
			t.Errorf("got %v, %v", c.Subject, err)
		}
		n, err := f.Nodes.Get(t.Context(), api.NodeRequest{Node: a.ID})
		if err != nil || !n.CertificateExpiresAt.Equal(f.Clock.Now().Add(api.CertificateLife)) {
			t.Errorf("it is kept to end at %v, %v", n.CertificateExpiresAt, err)
		}
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
			t.Fatal(err)
		}
		_, err = f.Nodes.Renew(a.Context(t.Context()), api.RenewRequest{CSR: servertest.CSR(t, key)})
		wantCode(t, "renew a revoked node", err, api.NodeRevoked)
	})
}

func TestTrustIsSignedForTheCaller(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	for _, c := range []struct{ node string }{{""}, {a.ID}} {
		ctx := t.Context()
		if c.node != "" {
			ctx = a.Context(ctx)
		}
		e, err := f.Nodes.Trust(ctx, api.TrustRequest{Nonce: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		_, doc, err := seal.OpenTrust(e, c.node, f.Authority.Pin())
		if err != nil || doc.Nonce != "n1" || !doc.ServerTime.Equal(f.Clock.Now()) {
			t.Errorf("for %q: %+v, %v", c.node, doc, err)
		}
	}
}
