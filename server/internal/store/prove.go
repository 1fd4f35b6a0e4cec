package store

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// prove holds the schema in the database to the one that is written down, so
// that no rule works on tables that somebody has changed by hand.
func (s *Store) prove(ctx context.Context, files fs.FS) error {
	golden, err := fs.ReadFile(files, s.dialect.golden())
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	got, err := s.schema(ctx)
	if err != nil {
		return fmt.Errorf("read schema of the database: %w", err)
	}
	if difference := difference(got, string(golden)); difference != "" {
		return fmt.Errorf("the tables in the database are not those of this version: %s: restore a backup, or undo what was changed by hand", difference)
	}
	return nil
}

// schema is the text that a golden file holds.
func (s *Store) schema(ctx context.Context) (text string, err error) {
	err = s.View(ctx, func(tx *Tx) error {
		lines, err := s.dialect.schema(tx)
		text = strings.Join(lines, "\n") + "\n"
		return err
	})
	return text, err
}

// difference names the first one, or is empty.
func difference(got, want string) string {
	if got == want {
		return ""
	}
	have, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range wanted {
		if !slices.Contains(have, line) {
			return fmt.Sprintf("`%s` is missing", line)
		}
	}
	for _, line := range have {
		if !slices.Contains(wanted, line) {
			return fmt.Sprintf("`%s` should not be there", line)
		}
	}
	return "the columns of a table stand in another order"
}
