package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

type postgres struct{ url string }

const (
	maxWriters    = 16                    // connections of one server that may write
	migrationLock = int64(0x6265636b6f6e) // "beckon": the advisory lock of those who migrate
)

func (d postgres) open() (read, write *sql.DB, err error) {
	if write, err = pool(d.url, maxWriters); err != nil {
		return nil, nil, err
	}
	read, err = pool(d.url, maxReaders)
	return read, write, err
}

func pool(url string, most int) (*sql.DB, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, nil
}

// String leaves out the address, which may hold a password.
func (postgres) String() string { return "PostgreSQL database" }

func (postgres) oneWriter() bool { return false }

// again: serialization_failure and deadlock_detected.
func (postgres) again(err error) bool {
	state := sqlState(err)
	return state == "40001" || state == "40P01"
}

func (postgres) lock(tx *Tx) error {
	_, err := tx.Exec(`SELECT pg_advisory_xact_lock($1)`, migrationLock)
	return err
}

func (postgres) golden() string { return "sql.postgres.golden" }

// schema is what PostgreSQL makes of it. NOT NULL stands with the columns;
// newer versions have a constraint for it as well.
func (postgres) schema(tx *Tx) (lines []string, err error) {
	rows, err := tx.Query(`
		SELECT line FROM (
			SELECT 'table' AS kind, table_name::text AS name, ordinal_position::int AS place,
				'table ' || table_name || ': ' || column_name || ' ' || data_type ||
				CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END || COALESCE(' DEFAULT ' || column_default, '') AS line
			FROM information_schema.columns WHERE table_schema = current_schema()
			UNION ALL
			SELECT 'constraint', conname::text, 0,
				'constraint ' || conname || ': ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid, true)
			FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND contype <> 'n'
			UNION ALL
			SELECT 'index', relname::text, 0, 'index ' || relname || ': ' || pg_get_indexdef(indexrelid, 0, true)
			FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
			WHERE relnamespace = current_schema()::regnamespace
		) AS s ORDER BY kind COLLATE "C", name COLLATE "C", place`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}

// pause waits a little longer after each try that lost a race, and reports
// whether ctx allows another.
func pause(ctx context.Context, try int) bool {
	wait := time.Millisecond << min(try, 6)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(rand.N(wait)):
		return true
	}
}

// sqlState is PostgreSQL's code, "" for other errors.
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
