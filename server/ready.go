package server

import (
	"context"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/server/internal/store"
)

// readiness is whether the database takes writes. Anybody may ask, so it is
// tried once a second at most.
type readiness struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (r *readiness) ask(ctx context.Context, st *store.Store) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < time.Second {
		return r.err
	}
	r.err = st.Update(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE migrations SET name = name WHERE name = (SELECT MAX(name) FROM migrations)`)
		return err
	})
	r.at = time.Now()
	return r.err
}
