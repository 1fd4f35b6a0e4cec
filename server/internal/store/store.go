// Package store is the durable state: one SQLite file, or a PostgreSQL shared
// by several servers. It knows no tables. Each package keeps its SQL beside
// the rule that needs it and gets a Tx; the text is the same for both.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/schema"
)

const maxReaders = 8 // connections that only read, on either database

// Store is an open database. It is safe for concurrent use.
type Store struct {
	dialect     dialect
	clock       func() time.Time
	read, write *sql.DB
	group       *group // nil where the database takes many writers at once

	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup // updates and views under way
}

// dialect is all in which the two databases differ.
type dialect interface {
	fmt.Stringer // the database in words
	open() (read, write *sql.DB, err error)
	oneWriter() bool              // so that writers share a transaction
	again(error) bool             // the transaction lost a race and may be run again
	lock(*Tx) error               // keeps other servers from migrating until the transaction ends
	schema(*Tx) ([]string, error) // a line for each table, column, constraint and index
	golden() string               // the file that says what schema must answer
}

// Open opens the database at url, "sqlite:PATH" or "postgres://…", brings it to
// the newest schema and proves that it is that schema. clock tells each
// transaction its moment.
func Open(ctx context.Context, url string, clock func() time.Time) (*Store, error) {
	return open(ctx, url, clock, schema.Files)
}

func open(ctx context.Context, url string, clock func() time.Time, files fs.FS) (*Store, error) {
	s, err := connect(url, clock)
	if err != nil {
		return nil, err
	}
	if err = s.migrate(ctx, files); err == nil {
		err = s.prove(ctx, files)
	}
	if damaged(err) {
		err = fmt.Errorf("it is damaged, restore a backup: %w", err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", s.dialect, err), s.Close())
	}
	return s, nil
}

func connect(url string, clock func() time.Time) (*Store, error) {
	d, err := dialectOf(url)
	if err != nil {
		return nil, err
	}
	read, write, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d, err)
	}
	s := &Store{dialect: d, clock: clock, read: read, write: write}
	if d.oneWriter() {
		s.group = newGroup(s)
	}
	return s, nil
}

func dialectOf(url string) (dialect, error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok && path != "" {
		return sqlite{path}, nil
	}
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		return postgres{url}, nil
	}
	return nil, errors.New("the database must be sqlite:PATH or postgres://USER@HOST/NAME") // url may hold a password
}

// Close ends the store once all that is under way has ended. A SQLite database
// is then one file, without a log beside it.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	s.inside.Wait()
	if s.group != nil {
		s.group.close()
	}
	// The writer goes last: who closes the last connection to a SQLite file
	// moves its log into it, and readers may not.
	if err := errors.Join(s.read.Close(), s.write.Close()); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// Settling is how long after its moment a transaction may become visible behind
// later ones. Where one writer follows the other that is never; where many
// write at once, who reads on from the newest looks back as far.
func (s *Store) Settling() time.Duration {
	if s.dialect.oneWriter() {
		return 0
	}
	return 2 * time.Second
}

// enter counts a caller in, or refuses it.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.inside.Add(1)
	return nil
}

// Update runs do in a transaction that may write, and returns when it is
// durable. It may run do twice: do does nothing but SQL, calls no other Update,
// and leaves the rest to Tx.After. A row that do read and then writes is still
// as it was read. On PostgreSQL two updates that each read what the other writes
// may both succeed: a rule over several rows needs a unique index or a guarded
// UPDATE. A full disk is api.StorageFull, a database that cannot be had now
// api.Unavailable.
func (s *Store) Update(ctx context.Context, do func(*Tx) error) error {
	if err := s.enter(); err != nil {
		return trouble(err)
	}
	defer s.inside.Done()
	tx, err := s.update(ctx, do)
	if err != nil {
		return trouble(err)
	}
	for _, do := range tx.after {
		do()
	}
	return nil
}

func (s *Store) update(ctx context.Context, do func(*Tx) error) (*Tx, error) {
	do = safely(preceded(ctx, do))
	if s.group != nil {
		return s.group.update(ctx, do)
	}
	for try := 0; ; try++ {
		tx, err := s.run(ctx, s.write, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, do)
		if err == nil || !s.dialect.again(err) || !pause(ctx, try) {
			return tx, err
		}
	}
}

// View runs do on one consistent picture of the state. It cannot write, and
// what it gives to Tx.After never runs.
func (s *Store) View(ctx context.Context, do func(*Tx) error) error {
	if err := s.enter(); err != nil {
		return trouble(err)
	}
	defer s.inside.Done()
	_, err := s.run(ctx, s.read, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}, do)
	return trouble(err)
}

// run is a transaction of its own, which ends with ctx.
func (s *Store) run(ctx context.Context, db *sql.DB, opts *sql.TxOptions, do func(*Tx) error) (*Tx, error) {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	t := s.newTx(ctx, tx)
	if err := do(t); err != nil {
		return nil, err
	}
	return t, tx.Commit()
}
