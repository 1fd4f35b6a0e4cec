package store

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Scanner is one row, from a list or alone.
type Scanner interface{ Scan(into ...any) error }

// Collect reads all rows and closes them.
func Collect[T any](rows *sql.Rows, scan func(Scanner) (T, error)) ([]T, error) {
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("scan row: %w", err)
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// Page reads at most limit of the rows and says, when there are more, after
// which item the next page begins. The query asks for limit+1.
func Page[T any](rows *sql.Rows, limit int, scan func(Scanner) (T, error), key func(T) string) (page api.Page[T], err error) {
	page.Items, err = Collect(rows, scan)
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.Next = key(page.Items[limit-1])
	}
	return page, err
}

// Millis is how a time is kept: 0 for none.
func Millis(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

// Time is what Millis kept.
func Time(millis int64) *time.Time {
	if millis == 0 {
		return nil
	}
	t := time.UnixMilli(millis).UTC()
	return &t
}

// ScanText reads a row of one text.
func ScanText(row Scanner) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}
