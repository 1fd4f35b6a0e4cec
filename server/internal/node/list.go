package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

const selectNodes = `
	SELECT id, name, status, labels, hostname, os, arch, agent_version, tier, cpu_cores, mem_bytes, disk_bytes,
		online, seen_at, created_at, joined_at, revoked_at, certificate_expires_at FROM nodes `

// List is api.ListNodes.
func (s *Service) List(ctx context.Context, req api.ListNodesRequest) (page api.Page[api.Node], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		// The id keeps pages apart where a revoked node had the same name.
		rows, err := tx.Query(selectNodes+`
			WHERE ($1 = '' OR name || ' ' || id > $1) AND ($2 = '' OR status = $2)
			ORDER BY name || ' ' || id LIMIT $3`, req.After, req.Status, req.PageLimit()+1)
		if err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		page, err = store.Page(rows, req.PageLimit(), s.scan(tx.Now), func(n api.Node) string { return n.Name + " " + n.ID })
		return err
	})
	return page, err
}

// Get is api.GetNode.
func (s *Service) Get(ctx context.Context, req api.NodeRequest) (n api.Node, err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		n, err = s.get(tx, req.Node)
		return err
	})
	return n, err
}

func (s *Service) get(tx *store.Tx, ref string) (n api.Node, err error) {
	row, err := Find(tx, ref)
	if err != nil {
		return n, err
	}
	return s.scan(tx.Now)(tx.QueryRow(selectNodes+`WHERE id = $1`, row.ID))
}

func (s *Service) scan(now time.Time) func(store.Scanner) (api.Node, error) {
	return func(row store.Scanner) (n api.Node, err error) {
		var labels string
		var online bool
		var seen, created, joined, revoked, expires int64
		err = row.Scan(&n.ID, &n.Name, &n.Status, &labels, &n.Hostname, &n.OS, &n.Arch, &n.AgentVersion, &n.Tier, &n.CPUCores,
			&n.MemBytes, &n.DiskBytes, &online, &seen, &created, &joined, &revoked, &expires)
		if err != nil {
			return n, err
		}
		n.LastSeenAt, n.CreatedAt, n.JoinedAt = store.Time(seen), *store.Time(created), store.Time(joined)
		n.RevokedAt, n.CertificateExpiresAt = store.Time(revoked), store.Time(expires)
		s.overlay(&n)
		n.Presence = s.presence(n, online, now)
		err = json.Unmarshal([]byte(labels), &n.Labels)
		return n, err
	}
}

// overlay adds what is only in memory, and is newer than the last flush.
func (s *Service) overlay(n *api.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[n.ID]
	if l == nil || n.Status != api.StatusActive {
		return
	}
	seen := l.seen.UTC()
	n.LastSeenAt, n.Protocol, n.AgentVersion = &seen, l.caller.Protocol, l.caller.Version
	n.CPUCores, n.MemBytes, n.DiskBytes = l.capacity.CPUCores, l.capacity.MemBytes, l.capacity.DiskBytes
	n.Hello, n.Self, n.Wake = l.hello, l.self, l.wake
}

// presence is judged by the server's clock alone. It is unknown where nothing
// was heard yet and silence proves nothing: before the first heartbeat, and
// for one window after a start of the server.
func (s *Service) presence(n api.Node, online bool, now time.Time) api.Presence {
	window := api.OfflineAfter(s.Pace)
	switch {
	case n.Status != api.StatusActive || n.LastSeenAt == nil:
		return api.PresenceUnknown
	case now.Sub(*n.LastSeenAt).Abs() < window:
		return api.Online
	case online && s.justBegan(now):
		return api.PresenceUnknown
	}
	return api.Offline
}

// Presences counts the active nodes by presence.
func (s *Service) Presences(tx *store.Tx) (map[api.Presence]int, error) {
	rows, err := tx.Query(selectNodes + `WHERE status = 'active'`)
	if err != nil {
		return nil, fmt.Errorf("count nodes: %w", err)
	}
	nodes, err := store.Collect(rows, s.scan(tx.Now))
	counts := map[api.Presence]int{api.Online: 0, api.Offline: 0, api.PresenceUnknown: 0}
	for _, n := range nodes {
		counts[n.Presence]++
	}
	return counts, err
}

// Waiting says for a person whom a command for the node waits on.
func (s *Service) Waiting(tx *store.Tx, id string) (string, error) {
	n, err := s.get(tx, id)
	if err != nil {
		return "", err
	}
	switch {
	case n.Presence == api.Online:
		return "node " + n.Name + ", online", nil
	case n.LastSeenAt == nil:
		return "node " + n.Name + ", not seen yet", nil
	}
	return fmt.Sprintf("node %s, %s, last seen %s", n.Name, n.Presence, n.LastSeenAt.Format(time.RFC3339)), nil
}

// Revoke is api.RevokeNode. Waiting calls of the node are woken once that is
// durable, and learn it.
func (s *Service) Revoke(ctx context.Context, req api.RevokeNodeRequest) (n api.Node, err error) {
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		row, err := Find(tx, req.Node)
		if err != nil {
			return err
		}
		if err := s.revoke(tx, row.ID, "node_revoked"); err != nil {
			return err
		}
		n, err = s.get(tx, row.ID)
		return err
	})
	return n, err
}

// revoke shuts a node out. One that is out already stays as it is.
func (s *Service) revoke(tx *store.Tx, id, reason string) error {
	return s.shutOut(tx, id, api.StatusRevoked, reason)
}

// shutOut makes a node revoked or left, and ends what it had to do.
func (s *Service) shutOut(tx *store.Tx, id string, to api.NodeStatus, reason string) error {
	var name string
	err := tx.QueryRow(`
		UPDATE nodes SET status = $2, revoked_at = $3, online = FALSE WHERE id = $1 AND status NOT IN ('revoked', 'left') RETURNING name`,
		id, to, tx.Now.UnixMilli()).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shut node out: %w", err)
	}
	if _, err := tx.Exec(`UPDATE join_tokens SET revoked_at = $2 WHERE node_id = $1 AND used_at = 0 AND revoked_at = 0`, id, tx.Now.UnixMilli()); err != nil {
		return fmt.Errorf("revoke the node's token: %w", err)
	}
	tx.After(func() {
		s.forget(id)
		s.Hub.Revoke(id)
	})
	if err := s.Left(tx, id, reason); err != nil {
		return err
	}
	return event.Record(tx, api.Event{Kind: "node_" + string(to), NodeID: id, Message: name + ": " + reason})
}

func (s *Service) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lives, id)
}

func recordPresence(tx *store.Tx, node, kind, message string) error {
	return event.Record(tx, api.Event{Kind: kind, NodeID: node, Message: message})
}
