package store_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/beckon-fleet/beckon/server/internal/store"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

// files are migrations with the golden file that they make on url's kind of
// database.
func files(t *testing.T, url string, texts map[string]string) fs.FS {
	t.Helper()
	all := fstest.MapFS{}
	for name, text := range texts {
		all["sql/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	scratch := "sqlite:" + filepath.Join(t.TempDir(), "scratch.db")
	if strings.HasPrefix(url, "postgres") {
		scratch = storetest.Postgres(t)
	}
	name, text, err := store.Golden(t.Context(), scratch, all)
	if err != nil {
		t.Fatal(err)
	}
	all[name] = &fstest.MapFile{Data: []byte(text)}
	return all
}

func openFiles(t *testing.T, url string, texts map[string]string) *store.Store {
	t.Helper()
	s, err := store.OpenFiles(t.Context(), url, files(t, url, texts))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustExec(t *testing.T, s *store.Store, query string, args ...any) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, s *store.Store, query string, args ...any) (n int64) {
	t.Helper()
	err := s.View(t.Context(), func(tx *store.Tx) error { return tx.QueryRow(query, args...).Scan(&n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var (
	first  = map[string]string{"0001_init.sql": "-- one, two\nCREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT NOT NULL DEFAULT 'x,y');"}
	second = map[string]string{"0002_more.sql": "ALTER TABLE t ADD COLUMN c BIGINT; CREATE INDEX t_c ON t (c) WHERE c > 0; INSERT INTO t (a, c) VALUES (7, 7);"}
)

func both() map[string]string {
	all := maps.Clone(first)
	maps.Copy(all, second)
	return all
}

func TestEachMigrationRunsOnce(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		closeStore(t, openFiles(t, url, first))
		for range 2 {
			s := openFiles(t, url, both())
			if n := number(t, s, `SELECT SUM(c) FROM t`); n != 7 {
				t.Errorf("the second migration left %d", n)
			}
			closeStore(t, s)
		}
	})
}

func TestMigrationThatFailsLeavesNothing(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		whole := files(t, url, both()).(fstest.MapFS)
		broken := maps.Clone(whole)
		broken["sql/0002_more.sql"] = &fstest.MapFile{Data: []byte("ALTER TABLE t ADD COLUMN c BIGINT; INSERT INTO nowhere (a) VALUES (1);")}
		if _, err := store.OpenFiles(t.Context(), url, broken); err == nil || !strings.Contains(err.Error(), "0002_more.sql") {
			t.Fatalf("want an error that names the file, got %v", err)
		}
		s, err := store.OpenFiles(t.Context(), url, whole)
		if err != nil {
			t.Fatalf("half of it stayed: %v", err)
		}
		closeStore(t, s)
	})
}

func TestServersMayMigrateAtOnce(t *testing.T) {
	url := storetest.Postgres(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := store.Open(t.Context(), url, time.Now)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestForeignDatabasesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		made   map[string]string
		change string
		opened map[string]string
		want   string
	}{
		"changed migration":   {first, "", map[string]string{"0001_init.sql": first["0001_init.sql"] + "\n"}, "migration 0001_init.sql is not the one"},
		"newer database":      {both(), "", first, "a newer version has used this database: 1 of its 2 migrations"},
		"column too many":     {first, `ALTER TABLE t ADD COLUMN mine BIGINT`, first, "should not be there"},
		"column too few":      {first, `ALTER TABLE t DROP COLUMN b`, first, "`table t: b "},
		"index too few":       {both(), `DROP INDEX t_c`, both(), "`index t_c: CREATE INDEX t_c ON t "},
		"table of a stranger": {first, `CREATE TABLE mine (a BIGINT)`, first, "`table mine: "},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.EachURL(t, func(t *testing.T, url string) {
				s := openFiles(t, url, c.made)
				if c.change != "" {
					mustExec(t, s, c.change)
				}
				closeStore(t, s)
				s, err := store.OpenFiles(t.Context(), url, files(t, url, c.opened))
				if err == nil {
					s.Close()
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("want %q, got %v", c.want, err)
				}
			})
		})
	}
}

func TestOpenSaysWhyNot(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("garbage "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                                       "must be sqlite:PATH",
		"sqlite:":                                "must be sqlite:PATH",
		"state.db":                               "must be sqlite:PATH",
		"mysql://root:sesame@127.0.0.1/":         "must be sqlite:PATH",
		"sqlite:/nowhere/state.db":               "open database /nowhere/state.db: ",
		"sqlite:" + t.TempDir():                  "open database /",
		"sqlite:" + garbage:                      "it is damaged, restore a backup",
		"postgres://b:sesame@127.0.0.1:1/x":      "open PostgreSQL database: ",
		"postgres://b:sesame@127.0.0.1:notaport": "open PostgreSQL database: ",
	} {
		s, err := store.Open(t.Context(), url, time.Now)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: want %q and no password, got %v", url, want, err)
		}
	}
}

func TestAnyPathWillDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?#%20.db")
	s, err := store.Open(t.Context(), "sqlite:"+path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
