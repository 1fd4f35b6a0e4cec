package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// life is what a running agent last said of itself. It is in memory only:
// after a start of the server it is unknown until it is said again.
type life struct {
	seen     time.Time
	n        int64
	instance api.Instance
	caller   auth.Caller
	capacity api.HeartbeatRequest
	hello    *api.Hello
	self     *api.Self
	wake     *api.Wake
	dirty    bool // not flushed yet
}

// Heartbeat is api.Heartbeat. It writes nothing itself: what is new goes to the
// database with the next Flush.
func (s *Service) Heartbeat(ctx context.Context, req api.HeartbeatRequest) (res api.HeartbeatResponse, err error) {
	caller := auth.From(ctx)
	res.HelloWanted = s.beat(caller, req)
	if err := s.noticeEpoch(ctx, caller); err != nil {
		return res, err
	}
	res.ServerTime, res.NextS = s.Clock().UTC(), int(s.Pace.Seconds())
	for _, name := range req.Dropped {
		res.Warnings = append(res.Warnings, name+" does not fit and was ignored")
	}
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		if res.Cursors, err = s.cursors(tx, caller.Node); err != nil {
			return err
		}
		if res.ResultsWanted, err = s.Wanted(tx, caller.Node); err != nil {
			return err
		}
		if req.Hello != nil {
			res.Active, err = s.Active(tx, caller.Node)
		}
		return err
	})
	return res, err
}

// beat takes a heartbeat in, and says whether a hello is wanted.
func (s *Service) beat(caller auth.Caller, req api.HeartbeatRequest) (helloWanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[caller.Node]
	if l == nil || l.instance != caller.Instance {
		l = &life{instance: caller.Instance}
		s.lives[caller.Node] = l
	}
	l.seen, l.caller, l.dirty = s.Clock(), caller, true
	late := req.N != 0 && req.N < l.n
	if !late {
		l.n = max(l.n, req.N)
		l.capacity = api.HeartbeatRequest{CPUCores: req.CPUCores, MemBytes: req.MemBytes, DiskBytes: req.DiskBytes}
		l.self, l.wake = req.Self, req.Wake
		if req.Hello != nil {
			l.hello = req.Hello
		}
	}
	return l.hello == nil
}

// noticeEpoch ends what was acked by a journal that is gone: nobody can tell
// any more what became of it.
func (s *Service) noticeEpoch(ctx context.Context, caller auth.Caller) error {
	if caller.Instance.Epoch == "" {
		return nil
	}
	known := ""
	read := func(tx *store.Tx) error {
		return tx.QueryRow(`SELECT journal_epoch FROM nodes WHERE id = $1`, caller.Node).Scan(&known)
	}
	if err := s.Store.View(ctx, read); err != nil || known == caller.Instance.Epoch {
		return err
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error {
		changed, err := tx.Changed(`UPDATE nodes SET journal_epoch = $2 WHERE id = $1 AND journal_epoch <> $2`, caller.Node, caller.Instance.Epoch)
		if err != nil || !changed {
			return err
		}
		return s.Reset(tx, caller.Node, caller.Instance.Epoch)
	})
}

// Cursors is api.GetCursors: it answers when the document differs from what
// the caller has, or after the wait.
func (s *Service) Cursors(ctx context.Context, req api.CursorsRequest) (res api.CursorsResponse, err error) {
	node := auth.From(ctx).Node
	waiter := s.Hub.Wait(node)
	defer waiter.Done()
	end := time.NewTimer(time.Duration(req.WaitS) * time.Second)
	defer end.Stop()
	for {
		err := s.Store.View(ctx, func(tx *store.Tx) error {
			if err := check(tx, node); err != nil { // it may have been revoked meanwhile
				return err
			}
			res.Cursors, err = s.cursors(tx, node)
			return err
		})
		if err != nil || res.ETag() != strings.TrimPrefix(req.Have, "W/") || req.WaitS == 0 {
			return res, err
		}
		select {
		case <-end.C:
			return res, nil
		case <-ctx.Done():
			return res, ctx.Err()
		case _, open := <-waiter.C():
			if !open {
				return res, nil // the server stops
			}
		}
	}
}

// Document is the cursors document of a node, for its stream; nil when it
// cannot be read now.
func (s *Service) Document(ctx context.Context, node string) (document []byte) {
	err := s.Store.View(ctx, func(tx *store.Tx) error {
		if err := check(tx, node); err != nil {
			return err
		}
		c, err := s.cursors(tx, node)
		if err != nil {
			return err
		}
		document, err = json.Marshal(c)
		return err
	})
	if errors.Is(err, api.NodeRevoked) { // while the stream was being opened
		s.Hub.Streams.Revoke(node)
	}
	if err != nil && ctx.Err() == nil {
		s.Log.WarnContext(ctx, "cursors not read", "node", node, "err", err)
	}
	return document
}

// Flush brings what heartbeats said into the database, all of it in one
// transaction, and tells of nodes that are back.
func (s *Service) Flush(ctx context.Context) error {
	dirty := s.takeDirty()
	if len(dirty) == 0 {
		return nil
	}
	err := s.Store.Update(ctx, func(tx *store.Tx) error {
		for node, l := range dirty {
			if err := flush(tx, node, l); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.markDirty(dirty)
	}
	return err
}

func flush(tx *store.Tx, node string, l life) error {
	_, err := tx.Exec(`
		UPDATE nodes SET seen_at = $2, cpu_cores = $3, mem_bytes = $4, disk_bytes = $5, agent_version = $6 WHERE id = $1`,
		node, l.seen.UnixMilli(), l.capacity.CPUCores, l.capacity.MemBytes, l.capacity.DiskBytes, l.caller.Version)
	if err != nil {
		return fmt.Errorf("flush heartbeat: %w", err)
	}
	back, err := tx.Changed(`UPDATE nodes SET online = TRUE WHERE id = $1 AND NOT online AND status = 'active'`, node)
	if err != nil || !back {
		return err
	}
	return recordPresence(tx, node, "node_online", "")
}

func (s *Service) takeDirty() map[string]life {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty := map[string]life{}
	for node, l := range s.lives {
		if l.dirty {
			dirty[node] = *l
			l.dirty = false
		}
	}
	return dirty
}

func (s *Service) markDirty(lives map[string]life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node := range lives {
		if l := s.lives[node]; l != nil {
			l.dirty = true
		}
	}
}

// Sweep declares nodes offline that were silent for too long, and drops nodes
// whose token can no longer be used. Any server may run it.
func (s *Service) Sweep(ctx context.Context) error {
	var due bool
	err := s.Store.View(ctx, func(tx *store.Tx) error {
		from, to := s.heard(tx.Now)
		return tx.QueryRow(`
			SELECT (SELECT COUNT(*) FROM nodes WHERE online AND (seen_at <= $1 OR seen_at >= $3)) +
				(SELECT COUNT(*) FROM nodes WHERE status = 'pending' AND id IN (`+spentTokens+`)) > 0`,
			from, tx.Now.UnixMilli(), to).Scan(&due)
	})
	if err != nil || !due {
		return err
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(dropPending(tx), s.dropOffline(tx))
	})
}

// heard is between which moments the last word of a node lies that is online
// still. A server that had no window yet to hear anybody takes any.
func (s *Service) heard(now time.Time) (from, to int64) {
	if s.justBegan(now) {
		return math.MinInt64, math.MaxInt64
	}
	window := api.OfflineAfter(s.Pace)
	return now.Add(-window).UnixMilli(), now.Add(window).UnixMilli()
}

// justBegan reports whether the server listens for less than one window. It
// begins anew when its clock was set or its machine slept: what was heard
// before cannot be compared, and who could not be heard was not silent.
func (s *Service) justBegan(now time.Time) bool {
	window := api.OfflineAfter(s.Pace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if step := now.Sub(s.latest); step.Abs() > window {
		s.started, s.latest = now, now
	} else if step > 0 {
		s.latest = now
	}
	return now.Sub(s.started) < window
}

func (s *Service) dropOffline(tx *store.Tx) error {
	from, to := s.heard(tx.Now)
	rows, err := tx.Query(`UPDATE nodes SET online = FALSE WHERE online AND (seen_at <= $1 OR seen_at >= $2) RETURNING id`, from, to)
	if err != nil {
		return fmt.Errorf("sweep nodes: %w", err)
	}
	gone, err := store.Collect(rows, store.ScanText)
	if err != nil {
		return err
	}
	slices.Sort(gone)
	for _, node := range gone {
		if err := recordPresence(tx, node, "node_offline", "no heartbeat for "+api.OfflineAfter(s.Pace).String()); err != nil {
			return err
		}
	}
	return nil
}
