package rest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/once"
)

// serveOnce is serve for a request that has a name.
func (b *binding[Req, Res]) serveOnce(w http.ResponseWriter, q *http.Request, name string, req Req, body []byte) {
	if len(name) > 255 || !storable(name) {
		Fail(w, q, api.Errorf(api.Invalid, "%s is longer than 255 bytes, or not UTF-8", api.HeaderIdempotencyKey))
		return
	}
	hash := sha256.Sum256(append([]byte(q.Method+" "+q.URL.RequestURI()+"\n"), body...))
	named := once.Request{
		Scope: b.router.scope(q) + " " + b.endpoint.Method + " " + b.endpoint.Path, Key: name, Hash: hex.EncodeToString(hash[:]),
	}
	ctx, first, err := b.router.keeper.Begin(q.Context(), named)
	switch {
	case err != nil:
		Fail(w, q, err)
	case first != nil:
		b.replay(w, q, *first)
	default:
		b.first(ctx, w, q, named, req)
	}
}

// first does what is asked, and keeps the answer.
func (b *binding[Req, Res]) first(ctx context.Context, w http.ResponseWriter, q *http.Request, named once.Request, req Req) {
	var kept *once.Answer
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		if err := b.router.keeper.End(ctx, named, kept); err != nil {
			slog.ErrorContext(ctx, "answer not kept; a repeat will be told so", "key", named.Key, "err", err)
		}
	}
	defer end() // a panic must not leave the key in use
	res, err := b.do(ctx, req)
	status := statusOf(cmp.Or(b.endpoint.Status, http.StatusOK), res)
	if err == nil {
		kept, err = keepable(status, res)
	}
	end() // before the answer: a caller who has it may repeat at once
	if err != nil {
		Fail(w, q, err)
		return
	}
	Answer(w, q, status, res)
}

// keepable is the answer without its secret.
func keepable(status int, res any) (*once.Answer, error) {
	if s, ok := res.(interface{ WithoutSecret() any }); ok {
		res = s.WithoutSecret()
	}
	text, err := json.Marshal(res)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return &once.Answer{Status: status, Body: string(text)}, nil
}

// replay gives the first answer again; where it held a secret, a new one.
func (b *binding[Req, Res]) replay(w http.ResponseWriter, q *http.Request, first once.Answer) {
	var res Res
	err := json.Unmarshal([]byte(first.Body), &res)
	if err == nil && b.again != nil {
		res, err = b.again(q.Context(), res)
	}
	if err != nil {
		Fail(w, q, err)
		return
	}
	describe(w, q, first.Status, res)
	w.Header().Set(api.HeaderReplayed, "true")
	write(w, first.Status, "application/json", res)
}
