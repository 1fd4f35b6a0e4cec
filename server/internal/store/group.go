package store

import (
	"context"
	"database/sql"
	"errors"
)

const maxGroup = 64

// group lets many updates share one commit, which is one wait for the disk.
// There is no timer: a group is whatever came while the last one was written.
type group struct {
	store *Store
	queue chan *update
	done  chan struct{}
}

type update struct {
	ctx  context.Context
	do   func(*Tx) error
	tx   *Tx
	err  error
	done chan struct{}
}

func newGroup(s *Store) *group {
	g := &group{s, make(chan *update), make(chan struct{})}
	go g.run()
	return g
}

// close ends the group. No update may be under way.
func (g *group) close() {
	close(g.queue)
	<-g.done
}

func (g *group) update(ctx context.Context, do func(*Tx) error) (*Tx, error) {
	u := &update{ctx: ctx, do: do, done: make(chan struct{})}
	select {
	case g.queue <- u:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	<-u.done // not on ctx: once taken, a caller learns what became of it
	return u.tx, u.err
}

func (g *group) run() {
	defer close(g.done)
	for u := range g.queue {
		g.settle(g.gather(u))
	}
}

// gather adds to u what is waiting at this moment.
func (g *group) gather(u *update) []*update {
	batch := []*update{u}
	for len(batch) < maxGroup {
		select {
		case u := <-g.queue:
			batch = append(batch, u)
		default:
			return batch
		}
	}
	return batch
}

// settle commits a batch. When that fails as a whole (a full disk takes the
// transaction with it, savepoints and all), each update is tried alone, so
// that only the one at fault is told no.
func (g *group) settle(batch []*update) {
	if err := g.commit(batch); err != nil {
		for _, u := range batch {
			if err := g.commit([]*update{u}); err != nil {
				u.err = err
			}
		}
	}
	for _, u := range batch {
		close(u.done)
	}
}

// commit does a batch in one transaction. No caller's context is in it: one
// that ended would take the others' rows along.
func (g *group) commit(batch []*update) error {
	tx, err := g.store.write.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, u := range batch {
		if u.err = u.ctx.Err(); u.err != nil {
			continue
		}
		u.tx = g.store.newTx(context.Background(), tx)
		if err := u.run(tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// run does one update in a savepoint. Its own failure is u.err; an error is
// returned when the transaction is gone.
func (u *update) run(tx *sql.Tx) error {
	if _, err := tx.Exec("SAVEPOINT one"); err != nil {
		return err
	}
	u.err = u.do(u.tx)
	if err := u.tx.closeRows(); u.err == nil {
		u.err = err
	}
	if u.err != nil {
		if _, err := tx.Exec("ROLLBACK TO one"); err != nil {
			return errors.Join(u.err, err)
		}
	}
	_, err := tx.Exec("RELEASE one")
	return err
}
