package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

const (
	firstWait   = time.Second // after a download that broke off
	longestWait = 30 * time.Second
	mostShort   = 3 // ends too soon without a byte: then the file is shorter than it should be
)

// download brings an archive to path and proves that it is what the signed
// command names. What breaks off goes on where it was, as long as ctx lives.
func (p programs) download(ctx context.Context, a api.Archive, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	d := downloading{source: p.source, archive: a, to: file, sum: sha256.New()}
	err = d.all(ctx)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != a.SHA256 {
		return fmt.Errorf("what came is not what was deployed (its sha256 is %s and not %s): "+
			"something on the way changed it, or the control plane's file is damaged; upload it again", got, a.SHA256)
	}
	return nil
}

// downloading is a download on its way.
type downloading struct {
	source  Source
	archive api.Archive
	to      io.Writer
	sum     hash.Hash
	have    int64
}

func (d *downloading) all(ctx context.Context) error {
	for delay, short := firstWait, 0; d.have < d.archive.SizeBytes; {
		before := d.have
		err := d.some(ctx)
		problem, ours := errors.AsType[*api.Error](err)
		disk, full := errors.AsType[*diskError](err)
		switch {
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("%d of %d bytes have come: %w; the last try: %w", d.have, d.archive.SizeBytes, ctx.Err(), err)
		case full:
			return disk.cause
		case ours && problem.Next() == api.ThenGiveUp:
			return err
		case d.have > before:
			delay, short = firstWait, 0
		case err == nil:
			short++
		}
		if short == mostShort {
			return fmt.Errorf("it ends after %d bytes and should have %d: upload it again", d.have, d.archive.SizeBytes)
		}
		if d.have == d.archive.SizeBytes {
			break
		}
		if stopped := wait(ctx, delay); stopped != nil {
			return fmt.Errorf("%d of %d bytes have come: %w", d.have, d.archive.SizeBytes, errors.Join(stopped, err))
		}
		delay = min(2*delay, longestWait)
	}
	return nil
}

// some reads until the source breaks off; never more than there should be.
func (d *downloading) some(ctx context.Context) error {
	from, err := d.source.Open(ctx, d.archive.FileID, d.have)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(d, io.LimitReader(from, d.archive.SizeBytes-d.have))
	return err
}

// diskError is a failure on this side, which no other try mends.
type diskError struct{ cause error }

// Error is the cause's.
func (e *diskError) Error() string { return e.cause.Error() }

// Write keeps what came.
func (d *downloading) Write(data []byte) (int, error) {
	n, err := d.to.Write(data)
	d.sum.Write(data[:n])
	d.have += int64(n)
	if err != nil {
		return n, &diskError{fmt.Errorf("write archive: %w", err)}
	}
	return n, nil
}
