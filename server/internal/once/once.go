// Package once has a repeated request answered like the first one: operators
// name a request by an Idempotency-Key, and may send it again when its answer
// was lost (PROTOCOL.md section 13).
package once

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// keep is how long a key is remembered.
const keep = 24 * time.Hour

// Answer is what the first request was told.
type Answer struct {
	Status int
	Body   string
}

// Request names a request. Scope is who asked for what; Hash is of all that
// must be the same in a repeat.
type Request struct{ Scope, Key, Hash string }

// Keeper remembers requests and their answers.
type Keeper struct {
	Store *store.Store

	mu      sync.Mutex
	running map[Request]bool
}

// Begin returns the answer of an earlier request of this name, or a context
// whose first Update remembers the name in its own transaction: the effect and
// the name stand or fall together. End must follow. Errors: KeyReused,
// KeyInUse, Conflict when the first one's answer was lost in a crash.
func (k *Keeper) Begin(ctx context.Context, r Request) (claimed context.Context, first *Answer, err error) {
	if !k.enter(r) {
		return nil, nil, inUse(r)
	}
	defer func() {
		if claimed == nil {
			k.leave(r)
		}
	}()
	first, err = k.look(ctx, r)
	if err != nil || first != nil {
		return nil, first, err
	}
	return store.WithPrelude(ctx, k.claim(r)), nil, nil
}

// End forgets that the request is running and, where it has an answer, keeps
// it: whether the caller is still there or not.
func (k *Keeper) End(ctx context.Context, r Request, a *Answer) error {
	defer k.leave(r)
	if a == nil {
		return nil
	}
	return k.Store.Update(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE idempotency_keys SET status = $3, answer = $4 WHERE scope = $1 AND name = $2`, r.Scope, r.Key, a.Status, a.Body)
		return err
	})
}

func (k *Keeper) enter(r Request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := Request{Scope: r.Scope, Key: r.Key}
	if k.running[name] {
		return false
	}
	if k.running == nil {
		k.running = map[Request]bool{}
	}
	k.running[name] = true
	return true
}

func (k *Keeper) leave(r Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, Request{Scope: r.Scope, Key: r.Key})
}

func (k *Keeper) look(ctx context.Context, r Request) (first *Answer, err error) {
	var hash string
	var a Answer
	err = k.Store.View(ctx, func(tx *store.Tx) error {
		return tx.QueryRow(`SELECT hash, status, answer FROM idempotency_keys WHERE scope = $1 AND name = $2`, r.Scope, r.Key).
			Scan(&hash, &a.Status, &a.Body)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for idempotency key: %w", err)
	case hash != r.Hash:
		return nil, api.Errorf(api.KeyReused, "the Idempotency-Key %q was used for another request; make a new key for a new one", r.Key)
	case a.Status == 0:
		return nil, api.Errorf(api.Conflict, "the first request with the Idempotency-Key %q took effect, but its answer was lost; look for what it made", r.Key)
	}
	return &a, nil
}

// claim remembers the name in the first transaction of the request.
func (k *Keeper) claim(r Request) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		won, err := tx.Changed(`
			INSERT INTO idempotency_keys (scope, name, hash, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			r.Scope, r.Key, r.Hash, tx.Now.UnixMilli())
		if err != nil {
			return fmt.Errorf("keep idempotency key: %w", err)
		}
		if !won { // another server has it
			return inUse(r)
		}
		return nil
	}
}

func inUse(r Request) error {
	return api.Errorf(api.KeyInUse, "the first request with the Idempotency-Key %q is still running; ask again", r.Key)
}

// Sweep forgets old names. Any server may run it.
func (k *Keeper) Sweep(ctx context.Context) error {
	return k.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`DELETE FROM idempotency_keys WHERE created_at < $1`, tx.Now.Add(-keep).UnixMilli())
		return err
	})
}
