// Package storetest gives tests a real, empty database of each kind.
package storetest

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Each runs do on SQLite and, where BECKON_TEST_POSTGRES says where one is, on
// PostgreSQL in a schema of its own. In CI both must be there.
func Each(t *testing.T, do func(*testing.T, *store.Store)) {
	t.Helper()
	EachAt(t, time.Now, do)
}

// EachAt is Each by the test's own clock.
func EachAt(t *testing.T, clock func() time.Time, do func(*testing.T, *store.Store)) {
	t.Helper()
	EachURL(t, func(t *testing.T, url string) {
		s, err := store.Open(t.Context(), url, clock)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		do(t, s)
	})
}

// EachURL runs do with the address of an empty database of each kind, for
// tests that open one themselves, or more than once.
func EachURL(t *testing.T, do func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		do(t, "sqlite:"+filepath.Join(t.TempDir(), "state.db"))
	})
	t.Run("postgres", func(t *testing.T) { do(t, Postgres(t)) })
}

// Postgres is the address of an empty schema on the PostgreSQL that
// BECKON_TEST_POSTGRES names.
func Postgres(t *testing.T) string {
	t.Helper()
	server := os.Getenv("BECKON_TEST_POSTGRES")
	if server == "" {
		skip := t.Skip
		if os.Getenv("BECKON_CI") == "1" {
			skip = t.Fatal
		}
		skip("BECKON_TEST_POSTGRES is not set: start a PostgreSQL and name it there, as in postgres://user@127.0.0.1/postgres?sslmode=disable")
	}
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	query.Set("search_path", ownSchema(t, server))
	address.RawQuery = query.Encode()
	return address.String()
}

func ownSchema(t *testing.T, server string) (name string) {
	t.Helper()
	db, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	name = "t" + strings.ToLower(rand.Text())
	if _, err := db.Exec("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP SCHEMA " + name + " CASCADE"); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return name
}
