// Package file keeps the archives that operators upload and nodes download. The
// database says which there are; their bytes lie in a folder beside it, each
// under the name of its hash.
package file

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Service is the files.
type Service struct {
	Store *store.Store
	Dir   string // of their bytes, and of nothing else
	Log   *slog.Logger
	Most  int64 // bytes of a file; api.MaxFile unless said

	// Users names the apps that need a file.
	Users func(tx *store.Tx, id string) ([]string, error)
	// Serves reports whether a node is to run something of a file.
	Serves func(tx *store.Tx, node, id string) (bool, error)

	naming sync.Mutex // what is on disk and what the database says change together
}

const selectFiles = `SELECT id, sha256, size_bytes, created_at FROM files `

func scan(row store.Scanner) (f api.File, err error) {
	var created int64
	err = row.Scan(&f.ID, &f.SHA256, &f.SizeBytes, &created)
	if err == nil {
		f.CreatedAt = *store.Time(created)
	}
	return f, err
}

// Need finds a file that something is going to need, and keeps it from being
// removed until the caller's transaction ends.
func Need(tx *store.Tx, id string) (api.File, error) {
	f, err := scan(tx.QueryRow(`UPDATE files SET needed_at = $2 WHERE id = $1 RETURNING id, sha256, size_bytes, created_at`, id, tx.Now.UnixMilli()))
	return f, explain(err, id)
}

func explain(err error, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return api.Errorf(api.NotFound, "there is no file %q; upload it again, and use the id that the answer says", id)
	}
	if err != nil {
		return fmt.Errorf("find file: %w", err)
	}
	return nil
}

// List is api.ListFiles.
func (s *Service) List(ctx context.Context, req api.ListFilesRequest) (page api.Page[api.File], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Query(selectFiles+`WHERE $1 = '' OR id < $1 ORDER BY id DESC LIMIT $2`, req.After, req.PageLimit()+1)
		if err != nil {
			return fmt.Errorf("list files: %w", err)
		}
		page, err = store.Page(rows, req.PageLimit(), scan, func(f api.File) string { return f.ID })
		return err
	})
	return page, err
}

// Delete is api.DeleteFile.
func (s *Service) Delete(ctx context.Context, req api.DeleteFileRequest) (f api.File, err error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		if f, err = Need(tx, req.ID); err != nil { // who is about to need it waits, and then finds none
			return err
		}
		users, err := s.Users(tx, f.ID)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return api.Errorf(api.FileInUse, "the file is needed by %s: it is the app's archive, or one of its last %d revisions', or one that still runs",
				strings.Join(users, ", "), api.KeptRevisions)
		}
		return drop(tx, f)
	})
	if err == nil {
		s.forget(f)
	}
	return f, err
}

func drop(tx *store.Tx, f api.File) error {
	if _, err := tx.Exec(`DELETE FROM files WHERE id = $1`, f.ID); err != nil {
		return fmt.Errorf("remove file: %w", err)
	}
	return event.Record(tx, api.Event{Kind: "file_removed", Subject: f.ID})
}

// forget removes bytes that no file has any more. What cannot be removed now is
// an orphan, which Sweep removes.
func (s *Service) forget(f api.File) {
	if err := os.Remove(s.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("bytes of a removed file are still on disk", "file", f.ID, "err", err)
	}
}

func (s *Service) path(f api.File) string { return filepath.Join(s.Dir, f.SHA256) }

// Open is the content of a file, for a node that it serves. For others there is
// none.
func (s *Service) Open(ctx context.Context, node, id string) (f api.File, content *os.File, err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		serves, err := s.Serves(tx, node, id)
		if err != nil {
			return err
		}
		if !serves {
			return explain(sql.ErrNoRows, id)
		}
		f, err = scan(tx.QueryRow(selectFiles+`WHERE id = $1`, id))
		return explain(err, id)
	})
	if err != nil {
		return f, nil, err
	}
	content, err = os.Open(s.path(f))
	if err == nil && !s.whole(f) {
		err = errors.Join(fmt.Errorf("%s is not as long as it was", s.path(f)), content.Close())
	}
	if err != nil {
		s.Log.Error("a file is damaged: upload it again", "file", f.ID, "err", err)
		return f, nil, api.Errorf(api.NotFound, "file %s is damaged on the server: upload the same archive again, which mends it", f.ID).Because(err)
	}
	return f, content, nil
}

// whole reports whether all bytes of f seem to be there.
func (s *Service) whole(f api.File) bool {
	info, err := os.Stat(s.path(f))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.SizeBytes
}
