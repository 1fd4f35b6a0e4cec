package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
	"github.com/beckon-fleet/beckon/server/internal/store"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

func TestFullAndBusyTellTroubleApart(t *testing.T) {
	for name, c := range map[string]struct {
		err        error
		full, busy bool
	}{
		"nil":                  {},
		"another":              {err: errors.New("another")},
		"no space":             {err: fmt.Errorf("write file: %w", syscall.ENOSPC), full: true},
		"quota":                {err: syscall.EDQUOT, full: true},
		"postgres disk full":   {err: &pgconn.PgError{Code: "53100"}, full: true},
		"postgres unique":      {err: &pgconn.PgError{Code: "23505"}},
		"postgres shutdown":    {err: fmt.Errorf("x: %w", &pgconn.PgError{Code: "57P01"}), busy: true},
		"postgres connections": {err: &pgconn.PgError{Code: "53300"}, busy: true},
		"postgres link":        {err: &pgconn.PgError{Code: "08006"}, busy: true},
		"closed":               {err: store.ErrClosed, busy: true},
	} {
		if store.Full(c.err) != c.full || store.Busy(c.err) != c.busy {
			t.Errorf("%s: full %v, busy %v", name, store.Full(c.err), store.Busy(c.err))
		}
	}
}

// A full disk loses nothing that was acknowledged, and is over when there is
// room again.
func TestFullDisk(t *testing.T) {
	dir := durabletest.SmallDisk(t, 4<<20)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openFiles(t, "sqlite:"+filepath.Join(dir, "state.db"), first)
	defer closeStore(t, s)
	add := func(a int, text string) error {
		return s.Update(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(`INSERT INTO t (a, b) VALUES ($1, $2)`, a, text)
			return err
		})
	}
	var mu sync.Mutex
	var stored, full int64
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			err := add(i, strings.Repeat("x", 16<<10))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				stored++
			case store.Full(err):
				full++
			default:
				t.Errorf("want a full disk, got %v", err)
			}
		})
	}
	wg.Wait()
	if n := number(t, s, `SELECT COUNT(*) FROM t`); n != stored || stored == 0 || full == 0 {
		t.Errorf("%d rows, %d were acknowledged, %d refused", n, stored, full)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := add(1000, "small"); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

func TestBusySQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openFiles(t, "sqlite:"+path, first)
	defer closeStore(t, s)
	other, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = s.Update(t.Context(), func(tx *store.Tx) error {
		_, err := other.Exec(`INSERT INTO t (a) VALUES (1)`)
		return err
	})
	if !store.Busy(err) || store.Full(err) {
		t.Errorf("want busy, got %v", err)
	}
}

func TestBusyPostgres(t *testing.T) {
	if _, err := store.Open(t.Context(), "postgres://b@127.0.0.1:1/x?sslmode=disable", time.Now); !store.Busy(err) {
		t.Errorf("nobody listens: want busy, got %v", err)
	}
	s := openFiles(t, storetest.Postgres(t), first)
	defer closeStore(t, s)
	kill := func(tx *store.Tx) error {
		_, err := tx.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	}
	if err := s.Update(t.Context(), kill); !store.Busy(err) || store.Full(err) {
		t.Errorf("the connection was cut: want busy, got %v", err)
	}
	if err := s.View(t.Context(), kill); !store.Busy(err) {
		t.Errorf("the connection was cut: want busy, got %v", err)
	}
	mustExec(t, s, `INSERT INTO t (a) VALUES (1)`)
}
