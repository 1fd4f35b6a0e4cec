package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Journal is an open journal. Only one process has it open.
type Journal struct {
	db       *bbolt.DB
	clock    func() time.Time
	instance api.Instance
	damage   error
}

// damaged says that a journal is there and cannot be read, for reasons that
// will not go away.
type damaged struct{ cause error }

func (d damaged) Error() string { return "it is damaged: " + d.cause.Error() }

// Open opens the journal at path, or begins one: a new epoch. It counts the
// start. Another process that has it open is an error that says so. A journal
// that cannot be read is put aside and another begun: by the new epoch the
// server knows that what was acked before is lost. Damage then says so here.
func Open(path string, clock func() time.Time) (*Journal, error) {
	j, err := open(path, clock)
	if _, bad := errors.AsType[damaged](err); !bad {
		return j, err
	}
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	j, err = open(path, clock) // another process may have put it aside meanwhile
	bad, still := errors.AsType[damaged](err)
	if !still {
		return j, err
	}
	moved, err := durable.Quarantine(path, clock())
	if err != nil {
		return nil, fmt.Errorf("put damaged journal %s aside: %w", path, err)
	}
	damage := fmt.Errorf("the journal %s could not be read and was put aside as %s; "+
		"what the control plane had sent and this node not answered is reported as lost: %w", path, moved, bad.cause)
	if j, err = open(path, clock); err != nil {
		return nil, errors.Join(err, damage)
	}
	j.damage = damage
	return j, nil
}

// lockFolder lets one process at a time put a journal aside, so that none
// takes away the new one of another.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		folder.Close()
		return nil, fmt.Errorf("lock folder %s: %w", path, err)
	}
	return func() { folder.Close() }, nil
}

// open is Open for a journal that is whole, or not there; else the error is
// damaged.
func open(path string, clock func() time.Time) (*Journal, error) {
	db, err := openWhole(path)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("another agent uses %s; stop it first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	j := &Journal{db: db, clock: clock, instance: api.Instance{Random: strings.ToLower(rand.Text()[:8])}}
	if err := db.Update(j.begin); err != nil {
		return nil, fmt.Errorf("begin journal %s: %w", path, errors.Join(err, db.Close()))
	}
	return j, nil
}

// openWhole opens a file and reads all of it. What a damaged one does to bbolt
// is a panic, or a fault in the mapped file, which is made one.
func openWhole(path string) (db *bbolt.DB, err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, errors.Join(damaged{fmt.Errorf("%v", p)}, release(file))
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Second,
		OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if err != nil {
		return nil, classify(err)
	}
	if err := check(db, file); err != nil {
		return nil, errors.Join(damaged{err}, db.Close())
	}
	if err := tighten(file); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// release is for a file that bbolt has left open: what it mapped keeps the lock
// even when the file is closed.
func release(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}

// tighten keeps others from reading what was sent to this node.
func tighten(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return file.Chmod(0o600)
}

// classify tells a bad file from a bad moment: what the system refuses may go
// well the next time, and a newer format is whole.
func classify(err error) error {
	_, system := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, syscall.EISDIR):
		return damaged{err}
	case system, errors.Is(err, berrors.ErrTimeout), errors.Is(err, berrors.ErrVersionMismatch):
		return err
	}
	return damaged{err}
}

// check reads every page that holds something, first in this goroutine, where
// a fault is no end, and then by bbolt's own rules.
func check(db *bbolt.DB, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("it has %d of %d bytes", info.Size(), tx.Size())
		}
		if err := tx.ForEach(readable); err != nil {
			return err
		}
		var first error
		for err := range tx.Check() { // to its end: it runs beside us
			if first == nil {
				first = err
			}
		}
		return first
	})
}

func readable(bucket []byte, b *bbolt.Bucket) error {
	return b.ForEach(func(_, text []byte) error {
		if bytes.Equal(bucket, entriesBucket) {
			return json.Unmarshal(text, new(Entry))
		}
		return nil
	})
}

func (j *Journal) begin(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(entriesBucket); err != nil {
		return err
	}
	meta, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return err
	}
	j.instance.Epoch = string(meta.Get([]byte("epoch")))
	if j.instance.Epoch == "" {
		j.instance.Epoch = strings.ToLower(rand.Text())
		if err := meta.Put([]byte("epoch"), []byte(j.instance.Epoch)); err != nil {
			return err
		}
	}
	if counted := meta.Get([]byte("starts")); len(counted) == 8 {
		j.instance.Starts = int64(binary.BigEndian.Uint64(counted))
	}
	j.instance.Starts++
	if _, err := api.ParseInstance(j.instance.String()); err != nil {
		return damaged{err} // the server would refuse every call
	}
	return meta.Put([]byte("starts"), binary.BigEndian.AppendUint64(nil, uint64(j.instance.Starts)))
}
