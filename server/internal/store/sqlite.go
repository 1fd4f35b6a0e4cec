package store

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"

	driver "modernc.org/sqlite"
)

type sqlite struct{ path string }

// The pragmas are in the DSN so that every connection of the pool has them;
// busy_timeout comes first, since setting WAL may itself meet a lock. Readers
// cannot write. _dqs=0 refuses "text" in double quotes, which PostgreSQL takes
// for a column. The log goes into the file every 8 MiB, and gives back what a
// long reader made it grow beyond 64.
const (
	allPragmas   = "?_dqs=0&_pragma=busy_timeout(10000)"
	readPragmas  = "&_pragma=query_only(1)"
	writePragmas = "&_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)" +
		"&_pragma=wal_autocheckpoint(2000)&_pragma=journal_size_limit(67108864)"
)

func (d sqlite) open() (read, write *sql.DB, err error) {
	dsn := "file:" + (&url.URL{Path: d.path}).EscapedPath() + allPragmas
	if write, err = sql.Open("sqlite", dsn+writePragmas); err != nil {
		return nil, nil, err
	}
	write.SetMaxOpenConns(1)
	if read, err = sql.Open("sqlite", dsn+readPragmas); err != nil {
		return nil, nil, err
	}
	read.SetMaxOpenConns(maxReaders)
	read.SetMaxIdleConns(maxReaders)
	return read, write, nil
}

func (d sqlite) String() string { return "database " + d.path }

func (sqlite) oneWriter() bool { return true }

func (sqlite) again(error) bool { return false }

// lock has nothing to do: to begin a transaction that may write is the lock.
func (sqlite) lock(*Tx) error { return nil }

func (sqlite) golden() string { return "sql.golden" }

// schema is what SQLite keeps: the text of each CREATE, without comments and
// line breaks, a table's column by column.
func (sqlite) schema(tx *Tx) (lines []string, err error) {
	rows, err := tx.Query(`
		SELECT type, name, sql FROM sqlite_master
		WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type, name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			return nil, err
		}
		text = plain(text)
		parts := []string{text}
		if kind == "table" {
			parts = members(text)
		}
		for _, part := range parts {
			lines = append(lines, kind+" "+name+": "+part)
		}
	}
	return lines, rows.Err()
}

// plain is SQL without comments and needless space.
func plain(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		out.WriteString(code + "\n")
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// members splits CREATE TABLE at the outermost parentheses and the commas
// between them.
func members(text string) (parts []string) {
	depth, start := 0, 0
	cut := func(end int) {
		if part := strings.TrimSpace(text[start:end]); part != "" {
			parts = append(parts, part)
		}
		start = end + 1
	}
	for i, c := range text {
		switch {
		case c == '(':
			if depth++; depth == 1 {
				cut(i)
			}
		case c == ')':
			if depth--; depth == 0 {
				cut(i)
			}
		case c == ',' && depth == 1:
			cut(i)
		}
	}
	cut(len(text))
	return parts
}

// sqliteCode is SQLite's extended code, 0 for other errors.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code()
	}
	return 0
}
