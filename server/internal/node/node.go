// Package node knows who the nodes are, how they came to be and how they are.
package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/nudge"
	"github.com/beckon-fleet/beckon/server/internal/pki"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Service is the nodes. Fill the exported fields, then use it.
type Service struct {
	Store     *store.Store
	Hub       *nudge.Hub
	Authority *pki.Authority
	Clock     func() time.Time
	Log       *slog.Logger
	Pace      time.Duration // of heartbeats
	AgentURL  string        // printed in join commands

	// What the packages above have to say of a node, in the transaction at
	// hand. Left ends what a node that is shut out had to do; Reset ends what a
	// journal that is gone had acked. Wanted lists the commands whose result is
	// missing, Active the deployments believed to be there.
	Left   func(tx *store.Tx, node string, reason string) error
	Reset  func(tx *store.Tx, node string, epoch string) error
	Wanted func(tx *store.Tx, node string) ([]string, error)
	Active func(tx *store.Tx, node string) ([]string, error)
	// Running lists those as well that are under way.
	Running func(tx *store.Tx, node string) ([]string, error)

	mu      sync.Mutex
	started time.Time // from which silence counts
	latest  time.Time // that the clock has shown
	lives   map[string]*life
}

// Start marks the moment from which silence counts: a server that has just
// started declares nobody offline.
func (s *Service) Start() {
	s.started = s.Clock()
	s.latest = s.started
	s.lives = map[string]*life{}
}

// Row is what other packages need to know of a node.
type Row struct {
	ID, Name string
	Status   api.NodeStatus
	Labels   api.Labels
	Tier     *int
}

// Find resolves an id or a name. A name means the node that holds it now, else
// the one that was revoked last under it.
func Find(tx *store.Tx, ref string) (r Row, err error) {
	var labels string
	err = tx.QueryRow(`
		SELECT id, name, status, labels, tier FROM nodes WHERE id = $1 OR name = $1
		ORDER BY CASE WHEN id = $1 THEN 0 WHEN status NOT IN ('revoked', 'left') THEN 1 ELSE 2 END, revoked_at DESC LIMIT 1`, ref).Scan(&r.ID, &r.Name, &r.Status, &labels, &r.Tier)
	if errors.Is(err, sql.ErrNoRows) {
		return r, api.Errorf(api.NotFound, "there is no node %q", ref)
	}
	if err != nil {
		return r, fmt.Errorf("find node: %w", err)
	}
	err = json.Unmarshal([]byte(labels), &r.Labels)
	return r, err
}

// Active lists the active nodes, by name.
func Active(tx *store.Tx) ([]Row, error) {
	rows, err := tx.Query(`SELECT id, name, status, labels, tier FROM nodes WHERE status = 'active' ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list active nodes: %w", err)
	}
	return store.Collect(rows, func(row store.Scanner) (r Row, err error) {
		var labels string
		if err := row.Scan(&r.ID, &r.Name, &r.Status, &labels, &r.Tier); err != nil {
			return r, err
		}
		err = json.Unmarshal([]byte(labels), &r.Labels)
		return r, err
	})
}

// Has reports whether the node carries all of the labels.
func (r Row) Has(labels api.Labels) bool {
	for key, value := range labels {
		if have, ok := r.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// Allows says whether the node lets commands of kind k in; where it states no
// ceiling, its agent decides.
func (r Row) Allows(k api.AnyKind) error {
	if r.Tier != nil && *r.Tier < int(k.Tier()) {
		return api.Errorf(api.TierTooLow, "node %s was installed with tier %d, and %s needs %d", r.Name, *r.Tier, k.Name(), k.Tier())
	}
	return nil
}

// Check says whether the node may call at all.
func (s *Service) Check(ctx context.Context, id string) error {
	return s.Store.View(ctx, func(tx *store.Tx) error { return check(tx, id) })
}

func check(tx *store.Tx, id string) error {
	var status api.NodeStatus
	err := tx.QueryRow(`SELECT status FROM nodes WHERE id = $1`, id).Scan(&status)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return api.Errorf(api.NodeUnknown, "no node %s is known here; the server may have been restored from an older backup", id)
	case err != nil:
		return fmt.Errorf("check node: %w", err)
	case status == api.StatusLeft:
		return api.Errorf(api.NodeRevoked, "node %s has left; join again with a new token", id)
	case status == api.StatusRevoked:
		return api.Errorf(api.NodeRevoked, "node %s was revoked; join again with a new token", id)
	case status != api.StatusActive:
		return api.Errorf(api.NodeUnknown, "node %s is %s here; the server may have been restored from an older backup", id, status)
	}
	return nil
}

// Cursors says what the node should have.
func (s *Service) cursors(tx *store.Tx, id string) (c api.Cursors, err error) {
	if err := tx.QueryRow(`SELECT command_count FROM nodes WHERE id = $1`, id).Scan(&c.Commands); err != nil {
		return c, fmt.Errorf("read cursors: %w", err)
	}
	generation := s.Authority.Generation()
	c.Trust = &generation
	return c, nil
}
