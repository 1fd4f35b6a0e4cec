package store

import (
	"database/sql"
	"encoding/json"
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

// maxPage is how many bytes the items of a page have at most; what surrounds
// them has room beside it.
const maxPage = api.MaxBody - 64<<10

// Page reads at most limit of the rows, and no more than fit into one answer,
// and says, when there are more, after which item the next page begins. The
// query asks for limit+1.
func Page[T any](rows *sql.Rows, limit int, scan func(Scanner) (T, error), key func(T) string) (page api.Page[T], err error) {
	if page.Items, err = Collect(rows, scan); err != nil {
		return page, err
	}
	size, fit := 0, 0
	for ; fit < min(limit, len(page.Items)); fit++ {
		text, err := json.Marshal(page.Items[fit])
		if err != nil {
			return page, fmt.Errorf("encode item: %w", err)
		}
		if size += len(text) + 1; size > maxPage && fit > 0 {
			break
		}
	}
	if fit < len(page.Items) {
		page.Items = page.Items[:fit]
		page.Next = key(page.Items[fit-1])
	}
	return page, nil
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
