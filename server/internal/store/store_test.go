package store_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/server/internal/store"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

// each runs do on an open database of each kind with the table t.
func each(t *testing.T, do func(*testing.T, *store.Store)) {
	t.Helper()
	storetest.EachURL(t, func(t *testing.T, url string) {
		s := openFiles(t, url, first)
		defer closeStore(t, s)
		do(t, s)
	})
}

func TestReadThenWriteLosesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *store.Store) {
		mustExec(t, s, `CREATE TABLE counter (n BIGINT)`)
		mustExec(t, s, `INSERT INTO counter (n) VALUES (0)`)
		const callers, times = 50, 20
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range times {
					err := s.Update(t.Context(), func(tx *store.Tx) error {
						var n int64
						if err := tx.QueryRow(`SELECT n FROM counter`).Scan(&n); err != nil {
							return err
						}
						_, err := tx.Exec(`UPDATE counter SET n = $1`, n+1)
						return err
					})
					if err != nil {
						t.Errorf("busy %v: %v", store.Busy(err), err)
					}
				}
			})
		}
		wg.Wait()
		if n := number(t, s, `SELECT n FROM counter`); n != callers*times {
			t.Errorf("%d of %d were counted", n, callers*times)
		}
	})
}

// One caller's broken statement, panic, lost goroutine, forgotten rows or
// departure is its own.
func TestOneCallersTroubleIsItsOwn(t *testing.T) {
	refused := errors.New("refused by the rule")
	trouble := map[string]func(tx *store.Tx, leave func()) error{
		"statement": func(tx *store.Tx, _ func()) error {
			_, err := tx.Exec(`INSERT INTO nowhere (a) VALUES (1)`)
			return err
		},
		"twice":  func(tx *store.Tx, _ func()) error { _, err := tx.Exec(`INSERT INTO t (a) VALUES (-1)`); return err },
		"rule":   func(*store.Tx, func()) error { return refused },
		"panic":  func(*store.Tx, func()) error { panic("a bug") },
		"goexit": func(*store.Tx, func()) error { exitGoroutine(); return nil },
		"rows": func(tx *store.Tx, _ func()) error {
			_, err := tx.Query(`INSERT INTO t (a) VALUES (1000000), (1000001) RETURNING a`)
			return errors.Join(err, refused)
		},
		"leaves": func(tx *store.Tx, leave func()) error {
			go leave() // in the middle of a statement that writes
			_, err := tx.Exec(`INSERT INTO t (a) WITH RECURSIVE r (n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM r WHERE n < 3000) SELECT n FROM r`)
			return errors.Join(err, refused)
		},
	}
	for name, do := range trouble {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *store.Store) {
				mustExec(t, s, `INSERT INTO t (a) VALUES (-1)`)
				var wg sync.WaitGroup
				for i := range 60 {
					wg.Go(func() {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						err := s.Update(ctx, func(tx *store.Tx) error {
							if _, err := tx.Exec(`INSERT INTO t (a) VALUES ($1)`, i); err != nil {
								return err
							}
							if i%6 == 0 {
								return do(tx, cancel)
							}
							return nil
						})
						if (err != nil) != (i%6 == 0) {
							t.Errorf("caller %d: %v", i, err)
						}
					})
				}
				wg.Wait()
				if n := number(t, s, `SELECT COUNT(*) FROM t`); n != 51 {
					t.Errorf("%d rows instead of 51", n)
				}
			})
		})
	}
}

// exitGoroutine is what t.Fatal does beyond marking the test.
func exitGoroutine() { new(testing.T).SkipNow() }

func TestRowsLeftOpenAreClosedByTheCommit(t *testing.T) {
	each(t, func(t *testing.T, s *store.Store) {
		for i := range int64(20) {
			err := s.Update(t.Context(), func(tx *store.Tx) error {
				rows, err := tx.Query(`INSERT INTO t (a) VALUES ($1), ($2) RETURNING a`, 2*i, 2*i+1)
				if err == nil {
					rows.Next()
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := number(t, s, `SELECT COUNT(*) FROM t`); n != 40 {
			t.Errorf("%d rows instead of 40", n)
		}
	})
}

func TestViewSeesOneStateAndCannotWrite(t *testing.T) {
	each(t, func(t *testing.T, s *store.Store) {
		count := func(tx *store.Tx) (n int) {
			if err := tx.QueryRow(`SELECT COUNT(*) FROM t`).Scan(&n); err != nil {
				t.Error(err)
			}
			return n
		}
		mustExec(t, s, `INSERT INTO t (a) VALUES (1)`)
		err := s.View(t.Context(), func(tx *store.Tx) error {
			before := count(tx)
			mustExec(t, s, `INSERT INTO t (a) VALUES (2)`)
			if after := count(tx); before != 1 || after != 1 {
				t.Errorf("%d rows, then %d", before, after)
			}
			tx.After(func() { t.Error("After ran for a View") })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{`INSERT INTO t (a) VALUES (3)`, `DELETE FROM t`, `CREATE TABLE u (a BIGINT)`} {
			err := s.View(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(query); return err })
			if err == nil || store.Busy(err) || store.Full(err) {
				t.Errorf("%s in a View: %v", query, err)
			}
		}
		if n := number(t, s, `SELECT COUNT(*) FROM t`); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestViewEndsWithItsCaller(t *testing.T) {
	each(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.View(ctx, func(tx *store.Tx) error {
			cancel()
			var n int64 // of a query that nobody would wait for
			return tx.QueryRow(`WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4000000000)
				SELECT COUNT(*) FROM r`).Scan(&n)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("want canceled, got %v", err)
		}
	})
}

func TestTransactionHasOneMomentAndGuards(t *testing.T) {
	now := time.Date(2031, 2, 3, 4, 5, 6, 789_654_321, time.FixedZone("", 3600))
	storetest.EachAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store) {
		var ids []string
		var told bool
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			if !tx.Now.Equal(time.UnixMilli(now.UnixMilli())) || tx.Now.Location() != time.UTC {
				t.Errorf("Now is %v, the clock says %v", tx.Now, now)
			}
			ids = append(ids, tx.NewID("cmd"), tx.NewID("cmd"))
			tx.After(func() { told = true })
			for _, want := range []bool{true, false} {
				done, err := tx.Changed(`UPDATE migrations SET applied_at = $1 WHERE applied_at <> $1 AND name = '0001_init.sql'`, int64(1))
				if err != nil || done != want {
					t.Errorf("changed %v, want %v, %v", done, want, err)
				}
			}
			_, err := tx.Changed(`UPDATE nowhere SET a = 1`)
			return err
		})
		if err == nil || told {
			t.Errorf("told %v, %v", told, err)
		}
		if len(ids) != 2 || !strings.HasPrefix(ids[0], "cmd_") || ids[0] >= ids[1] {
			t.Errorf("ids %v do not rise", ids)
		}
	})
}

func TestConflict(t *testing.T) {
	each(t, func(t *testing.T, s *store.Store) {
		add := func(value any) error {
			return s.Update(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec(`INSERT INTO t (a, b) VALUES (1, $1)`, value)
				return err
			})
		}
		first, again, null := add("x"), add("x"), add(nil)
		if first != nil || !s.Conflict(again) || s.Conflict(nil) || s.Conflict(null) || null == nil {
			t.Errorf("%v, %v, %v", first, again, null)
		}
	})
}

func TestCloseWaitsAndLeavesOneFile(t *testing.T) {
	for name, call := range map[string]func(*store.Store, context.Context, func(*store.Tx) error) error{
		"for an Update": (*store.Store).Update, "for a View": (*store.Store).View,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			url := "sqlite:" + filepath.Join(dir, "state.db")
			made := files(t, url, first)
			synctest.Test(t, func(t *testing.T) {
				s, err := store.OpenFiles(t.Context(), url, made)
				if err != nil {
					t.Fatal(err)
				}
				closeDuring(t, s, call)
			})
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
			s := openFiles(t, url, first)
			defer closeStore(t, s)
			if n := number(t, s, `SELECT COUNT(*) FROM t`); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// closeDuring closes s while call is under way, which must not be hurt.
func closeDuring(t *testing.T, s *store.Store, call func(*store.Store, context.Context, func(*store.Tx) error) error) {
	mustExec(t, s, `INSERT INTO t (a) VALUES (1)`)
	hold, called, closed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		called <- call(s, t.Context(), func(tx *store.Tx) error {
			var n int
			<-hold
			return tx.QueryRow(`SELECT COUNT(*) FROM t`).Scan(&n)
		})
	}()
	synctest.Wait()
	go func() { closed <- s.Close() }()
	synctest.Wait()
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	for _, err := range []error{
		s.Update(t.Context(), func(*store.Tx) error { return nil }),
		s.View(t.Context(), func(*store.Tx) error { return nil }),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("want ErrClosed, got %v", err)
		}
	}
	close(hold)
	if err := errors.Join(<-called, <-closed, s.Close()); err != nil {
		t.Error(err)
	}
}

// What the DSN asks of SQLite must hold on the connections that write.
func TestSQLiteIsDurableAndStrict(t *testing.T) {
	s := openFiles(t, "sqlite:"+filepath.Join(t.TempDir(), "state.db"), first)
	defer closeStore(t, s)
	got := map[string]string{}
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		for _, name := range []string{"journal_mode", "synchronous", "foreign_keys", "busy_timeout"} {
			var value sql.NullString
			if err := tx.QueryRow(`PRAGMA ` + name).Scan(&value); err != nil {
				return err
			}
			got[name] = value.String
		}
		_, err := tx.Exec(`UPDATE t SET b = "text"`)
		if err == nil {
			t.Error("double quotes make a text, which PostgreSQL refuses")
		}
		return nil
	})
	if err != nil || got["journal_mode"] != "wal" || got["synchronous"] != "2" || got["foreign_keys"] != "1" || got["busy_timeout"] != "10000" {
		t.Errorf("%v, %v", got, err)
	}
}
