package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
)

// Tx is a transaction and the one moment at which all of it happens. It has no
// Commit and its methods take no context: a group of callers shares it, so no
// one of them may end or interrupt it. It is not used after do has returned.
type Tx struct {
	Now   time.Time // UTC, in whole milliseconds: as it is stored
	ctx   context.Context
	tx    *sql.Tx
	rows  []*sql.Rows
	after []func()
}

func (s *Store) newTx(ctx context.Context, tx *sql.Tx) *Tx {
	return &Tx{Now: s.clock().UTC().Truncate(time.Millisecond), ctx: ctx, tx: tx}
}

// Exec runs a statement that answers no rows.
func (t *Tx) Exec(query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(t.ctx, query, args...)
}

// Query runs a statement that answers rows. The caller closes them; the end of
// the transaction does as well.
func (t *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	rows, err := t.tx.QueryContext(t.ctx, query, args...)
	if err == nil {
		t.rows = append(t.rows, rows)
	}
	return rows, err
}

// closeRows closes what the caller left open: SQLite ends no savepoint while a
// statement that writes still answers.
func (t *Tx) closeRows() (err error) {
	for _, rows := range t.rows {
		err = errors.Join(err, rows.Close())
	}
	return err
}

// QueryRow runs a statement that answers one row, or sql.ErrNoRows.
func (t *Tx) QueryRow(query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, query, args...)
}

// Changed runs a guarded statement and says whether its guard let any row
// through.
func (t *Tx) Changed(query string, args ...any) (bool, error) {
	result, err := t.Exec(query, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// NewID returns an id such as cmd_0192…: its noun, and a UUIDv7, so that ids
// sort by the time they were made.
func (t *Tx) NewID(prefix string) string { return prefix + "_" + uuid.Must(uuid.NewV7()).String() }

// After runs do once the transaction is durable, and never when it failed:
// the place for nudges and woken waiters.
func (t *Tx) After(do func()) { t.after = append(t.after, do) }

// safely makes an error of the panic of do, or of the end of its goroutine,
// which is what a test's Fatal is: neither may take others' work along.
func safely(do func(*Tx) error) func(*Tx) error {
	return func(tx *Tx) error {
		done := make(chan error, 1)
		go func() {
			err := errors.New("the update ended its goroutine")
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("the update panicked: %v\n%s", p, debug.Stack())
				}
				done <- err
			}()
			err = do(tx)
		}()
		return <-done
	}
}
