package store

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/beckon-fleet/beckon/api"
	"github.com/jackc/pgx/v5/pgconn"
	lib "modernc.org/sqlite/lib"
)

// ErrClosed is what comes after Close gets. It is Busy.
var ErrClosed = errors.New("store is closed")

// Conflict reports whether err is a UNIQUE constraint's no.
func (s *Store) Conflict(err error) bool {
	code := sqliteCode(err)
	return code == lib.SQLITE_CONSTRAINT_UNIQUE || code == lib.SQLITE_CONSTRAINT_PRIMARYKEY || sqlState(err) == "23505"
}

// Full reports whether err is a full disk: nothing was stored, and nothing will
// be until a person makes room.
func Full(err error) bool {
	code := sqliteCode(err)
	return code&0xff == lib.SQLITE_FULL || code == lib.SQLITE_IOERR_SHMSIZE || // no room for the log's index
		sqlState(err) == "53100" || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Busy reports whether err is a database that cannot be had at the moment: it
// is locked, is starting, cannot be reached, or was closed. What was asked may
// be asked again; if it was an Update, it may have happened.
func Busy(err error) bool {
	code := sqliteCode(err) & 0xff
	return code == lib.SQLITE_BUSY || code == lib.SQLITE_LOCKED || busyState(sqlState(err)) ||
		unreachable(err) || errors.Is(err, ErrClosed)
}

// trouble says of a database in trouble what its caller may be told.
func trouble(err error) error {
	switch {
	case Full(err):
		return api.Errorf(api.StorageFull, "the server's disk is full: nothing was changed, and nothing can be until there is space again").Because(err)
	case Busy(err):
		return api.Errorf(api.Unavailable, "the server's database cannot be reached now; try again").Because(err)
	}
	return err
}

// damaged reports whether err is a file that is no database, or no longer.
func damaged(err error) bool {
	code := sqliteCode(err) & 0xff
	return code == lib.SQLITE_NOTADB || code == lib.SQLITE_CORRUPT
}

// busyState: connection exceptions, too many connections, lock not available,
// shutting down, crashed, starting.
func busyState(state string) bool {
	switch state {
	case "53300", "55P03", "57P01", "57P02", "57P03":
		return true
	}
	return strings.HasPrefix(state, "08")
}

func unreachable(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.ErrUnexpectedEOF)
}
