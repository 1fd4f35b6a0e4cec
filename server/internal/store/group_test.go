package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func openTest(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), "sqlite:"+path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, s, `CREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT)`)
	return s
}

func exec(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, s *Store) (n int64) {
	t.Helper()
	err := s.View(t.Context(), func(tx *Tx) error { return tx.QueryRow(`SELECT COUNT(*) FROM t`).Scan(&n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Of 200 callers who share commits some fail, some panic and some go away;
// each is told the truth and nobody else is hurt.
func TestGroupTellsEachCallerTheTruth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, path)
		defer s.Close()
		refused := errors.New("refused by the rule")
		var stored, after atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%7 == 0 {
					go cancel()
				}
				err := s.Update(ctx, func(tx *Tx) error {
					tx.After(func() { after.Add(1) })
					if _, err := tx.Exec(`INSERT INTO t (a) VALUES ($1)`, i); err != nil {
						return err
					}
					switch {
					case i%5 == 0:
						return refused
					case i%11 == 0:
						panic("a bug")
					}
					return nil
				})
				wrong := i%5 == 0 || i%11 == 0
				if err == nil {
					stored.Add(1)
				}
				if wrong && err == nil || !wrong && err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if n := count(t, s); n != stored.Load() || n != after.Load() || n < 100 {
			t.Errorf("%d rows, %d callers were told of one, After ran %d times", n, stored.Load(), after.Load())
		}
	})
}

func TestNobodyWritesForACallerWhoIsGone(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "db"))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // the queue may be ready as well, and select takes either
		err := s.Update(ctx, func(*Tx) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("want canceled, got %v", err)
		}
	}
}

// A full database rolls the whole transaction back, savepoints and all.
func TestFullDatabaseHurtsOnlyItsCause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, path)
		defer s.Close()
		if _, err := s.write.ExecContext(t.Context(), `PRAGMA max_page_count = 40`); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { s.Update(t.Context(), func(*Tx) error { <-hold; return nil }) })
		synctest.Wait() // so that the next three share one transaction
		var errs [3]error
		for i, text := range []string{"small", strings.Repeat("x", 1<<20), "small"} {
			wg.Go(func() {
				errs[i] = s.Update(t.Context(), func(tx *Tx) error {
					_, err := tx.Exec(`INSERT INTO t (a, b) VALUES ($1, $2)`, i, text)
					return err
				})
			})
			synctest.Wait()
		}
		close(hold)
		wg.Wait()
		if errs[0] != nil || errs[1] == nil || errs[2] != nil || count(t, s) != 2 {
			t.Errorf("%v, %d rows", errs, count(t, s))
		}
	})
}
