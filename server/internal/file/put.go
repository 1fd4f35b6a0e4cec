package file

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

const unfinished = ".tmp" // the end of the names of uploads under way

// Limit is how many bytes a file may have.
func (s *Service) Limit() int64 { return cmp.Or(s.Most, api.MaxFile) }

// Put is api.PutFile: it keeps what body holds, whose hash must be want unless
// that is "". What fails leaves nothing behind. The same content again is the
// same file, and mends one that was damaged.
func (s *Service) Put(ctx context.Context, body io.Reader, want string) (res api.PutFileResponse, err error) {
	temp, err := os.CreateTemp(s.Dir, "*"+unfinished)
	if err != nil {
		return res, full(fmt.Errorf("make file: %w", err))
	}
	defer func() {
		temp.Close() // it is closed already where it matters
		os.Remove(temp.Name())
	}()
	f, err := s.receive(temp, body)
	if err != nil {
		return res, err
	}
	if want != "" && want != f.SHA256 {
		return res, api.Errorf(api.Invalid, "what came is not what was sent: its sha256 is %s and %s says %s; send it again", f.SHA256, api.HeaderDigest, want)
	}
	s.naming.Lock()
	defer s.naming.Unlock()
	if err := s.place(temp.Name(), f); err != nil {
		return res, full(err)
	}
	return s.record(context.WithoutCancel(ctx), f)
}

// receive writes body to temp, and makes it durable.
func (s *Service) receive(temp *os.File, body io.Reader) (f api.File, err error) {
	sum := sha256.New()
	disk := &disk{to: temp}
	f.SizeBytes, err = io.Copy(io.MultiWriter(disk, sum), io.LimitReader(body, s.Limit()+1))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case disk.err != nil:
		return f, full(fmt.Errorf("write file: %w", disk.err))
	case tooLarge || f.SizeBytes > s.Limit():
		return f, api.Errorf(api.TooLarge, "the file is larger than %d bytes", s.Limit())
	case err != nil:
		return f, api.Errorf(api.Invalid, "the body could not be read to its end; send it again").Because(err)
	case f.SizeBytes == 0:
		return f, api.Errorf(api.Invalid, "the body is empty; send the bytes of a tar.gz or a tar")
	}
	if err := errors.Join(temp.Sync(), temp.Close()); err != nil {
		return f, full(fmt.Errorf("write file: %w", err))
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return f, nil
}

// disk keeps the failure of a write apart from those of a read.
type disk struct {
	to  io.Writer
	err error
}

func (d *disk) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.err = err
	return n, err
}

func full(err error) error {
	if store.Full(err) {
		return api.Errorf(api.StorageFull, "the server's disk is full: the file was not kept, and no other can be until there is space again").Because(err)
	}
	return err
}

// place gives the bytes their name.
func (s *Service) place(temp string, f api.File) error {
	if err := os.Rename(temp, s.path(f)); err != nil {
		return fmt.Errorf("name file: %w", err)
	}
	dir, err := os.Open(s.Dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// record has the database know the file. Bytes that it does not come to know
// are an orphan, which Sweep removes.
func (s *Service) record(ctx context.Context, f api.File) (res api.PutFileResponse, err error) {
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		known, err := scan(tx.QueryRow(`UPDATE files SET needed_at = $2 WHERE sha256 = $1 RETURNING id, sha256, size_bytes, created_at`,
			f.SHA256, tx.Now.UnixMilli()))
		if err == nil {
			res = api.PutFileResponse{File: known}
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("find file: %w", err)
		}
		f.ID, f.CreatedAt = tx.NewID("file"), tx.Now
		res = api.PutFileResponse{File: f, Created: true}
		_, err = tx.Exec(`INSERT INTO files (id, sha256, size_bytes, created_at, needed_at) VALUES ($1, $2, $3, $4, $4)`,
			f.ID, f.SHA256, f.SizeBytes, tx.Now.UnixMilli())
		if err != nil {
			return fmt.Errorf("store file: %w", err)
		}
		return event.Record(tx, api.Event{Kind: "file_stored", Subject: f.ID, Message: fmt.Sprintf("%d bytes", f.SizeBytes)})
	})
	return res, err
}

// Start makes the folder ready: uploads that an earlier process had not
// finished go.
func (s *Service) Start() error {
	left, err := filepath.Glob(filepath.Join(s.Dir, "*"+unfinished))
	if err != nil {
		return fmt.Errorf("look for unfinished uploads: %w", err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove unfinished upload: %w", err)
		}
	}
	return nil
}
