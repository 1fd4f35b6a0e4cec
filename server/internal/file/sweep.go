package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Sweep removes the files that nothing has needed for api.FileLife, and bytes
// on disk that no file has.
func (s *Service) Sweep(ctx context.Context) error {
	s.naming.Lock()
	defer s.naming.Unlock()
	var gone []api.File
	known := map[string]bool{}
	err := s.Store.Update(ctx, func(tx *store.Tx) error {
		gone = nil // it may run twice
		clear(known)
		all, err := s.look(tx)
		if err != nil {
			return err
		}
		for _, f := range all {
			kept, err := s.keep(tx, f)
			if err != nil {
				return err
			}
			if known[f.SHA256] = kept; !kept {
				gone = append(gone, f)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range gone {
		s.forget(f)
	}
	return s.removeOrphans(known)
}

func (s *Service) look(tx *store.Tx) ([]api.File, error) {
	rows, err := tx.Query(selectFiles + `ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	return store.Collect(rows, scan)
}

// keep says of a needed file that it is, and removes one that was not for long.
func (s *Service) keep(tx *store.Tx, f api.File) (bool, error) {
	users, err := s.Users(tx, f.ID)
	if err != nil {
		return false, err
	}
	if len(users) > 0 {
		_, err := tx.Exec(`UPDATE files SET needed_at = $2 WHERE id = $1`, f.ID, tx.Now.UnixMilli())
		return true, err
	}
	old, err := tx.Changed(`UPDATE files SET needed_at = needed_at WHERE id = $1 AND needed_at < $2`, f.ID, tx.Now.Add(-api.FileLife).UnixMilli())
	if err != nil || !old {
		return true, err
	}
	return false, drop(tx, f)
}

func (s *Service) removeOrphans(known map[string]bool) (err error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("list folder: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); !known[name] && !strings.HasSuffix(name, unfinished) {
			err = errors.Join(err, os.Remove(filepath.Join(s.Dir, name)))
		}
	}
	return err
}
