package server

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

// named calls the operator surface under an Idempotency-Key.
func (c *control) named(key, method, target, body string) reply {
	c.t.Helper()
	return c.send(http.DefaultClient, method, c.operators+target, body, http.Header{
		"Authorization": {"Bearer " + c.token}, "Idempotency-Key": {key},
	})
}

const stopWeb = `{"node": "web", "kind": "stop", "payload": {"app_id": "app_1", "app": "web"}}`

func TestRepeatIsAnsweredLikeTheFirst(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		c := run(t, Config{Database: url})
		c.join("web")
		first := c.named("k1", "POST", "/api/v1/commands", stopWeb)
		again := c.named("k1", "POST", "/api/v1/commands", stopWeb)
		if first.StatusCode != 201 || again.StatusCode != 201 || string(first.body) != string(again.body) ||
			again.Header.Get("Location") == "" || again.Header.Get("Location") != first.Header.Get("Location") {
			t.Errorf("first %d %s, then %d %s", first.StatusCode, first.body, again.StatusCode, again.body)
		}
		if first.Header.Get("Idempotent-Replayed") != "" || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("replayed: first %q, then %q", first.Header.Get("Idempotent-Replayed"), again.Header.Get("Idempotent-Replayed"))
		}
		c.named("k1", "POST", "/api/v1/commands", strings.Replace(stopWeb, "app_1", "app_2", 1)).refused(t, "another body", api.KeyReused)
		if got := c.named("k2", "POST", "/api/v1/commands", stopWeb); got.StatusCode != 201 || string(got.body) == string(first.body) {
			t.Errorf("another key: %d %s", got.StatusCode, got.body)
		}
		if got := c.named("k1", "PUT", "/api/v1/apps/shop", `{"image": "shop:1", "node": "web"}`); got.StatusCode != 201 {
			t.Errorf("the key on another route: %d %s", got.StatusCode, got.body)
		}
		// What was refused had no effect, so its key is free.
		c.named("k3", "POST", "/api/v1/apps/later/deployments", `{}`).refused(t, "too early", api.NotFound)
		c.operate("PUT", "/api/v1/apps/later", `{"image": "shop:1", "node": "web"}`)
		if got := c.named("k3", "POST", "/api/v1/apps/later/deployments", `{}`); got.StatusCode != 201 {
			t.Errorf("the same key after a refusal: %d %s", got.StatusCode, got.body)
		}
		c.named(strings.Repeat("k", 256), "POST", "/api/v1/commands", stopWeb).refused(t, "a long key", api.Invalid)
		c.named("\xff", "POST", "/api/v1/commands", stopWeb).refused(t, "a key that is no text", api.Invalid)
		c.named("\xff", "DELETE", "/api/v1/join-tokens/x", ``).refused(t, "a key that is no text", api.Invalid)
	})
}

// A key names one effect, however many ask for it at once.
func TestRepeatsAtOnceHaveOneEffect(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		c := run(t, Config{Database: url})
		c.join("web")
		var mu sync.Mutex
		bodies, busy := map[string]int{}, 0
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				got := c.named("k1", "POST", "/api/v1/commands", stopWeb)
				mu.Lock()
				defer mu.Unlock()
				if got.StatusCode == 201 {
					bodies[string(got.body)]++
					return
				}
				got.refused(t, "while the first one runs", api.KeyInUse)
				busy++
			})
		}
		wg.Wait()
		var page api.Page[api.CommandStatus]
		c.operate("GET", "/api/v1/commands", "").into(t, 200, &page)
		if len(bodies) != 1 || len(page.Items) != 1 {
			t.Errorf("%d answers, %d commands, %d times busy", len(bodies), len(page.Items), busy)
		}
	})
}

// A secret is not kept: the repeat gets a new one under the same id.
func TestRepeatReplacesASecret(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		c := run(t, Config{Database: url})
		var first, again api.CreatedJoinToken
		c.named("k1", "POST", "/api/v1/join-tokens", `{"name": "web"}`).into(t, 201, &first)
		c.named("k1", "POST", "/api/v1/join-tokens", `{"name": "web"}`).into(t, 201, &again)
		if again.ID != first.ID || again.NodeID != first.NodeID || again.Token == first.Token || !strings.Contains(again.Command, again.Token) {
			t.Errorf("first %+v, then %+v", first, again)
		}
		if _, certificate := c.joinBy(first.Token); certificate != nil {
			t.Error("the replaced token is good still")
		}
		if id, _ := c.joinBy(again.Token); id != first.NodeID {
			t.Errorf("the new token is for %q, want %s", id, first.NodeID)
		}
		c.named("k1", "POST", "/api/v1/join-tokens", `{"name": "web"}`).refused(t, "after it was used", api.TokenUsed)
	})
}
