// Package archive unpacks what operators upload. It trusts no archive: nothing
// is written outside the folder, and nothing grows without a bound.
package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits are what an archive may become. They are checked while it is
// unpacked, since what it says of itself proves nothing.
type Limits struct {
	Bytes   int64 // inflated, with the headers
	Entries int
}

// Owner is to whom all that is unpacked belongs, whatever the archive says.
type Owner struct{ UID, GID int }

// Unpack writes the files of a tar or tar.gz into dir, which must be there and
// empty, and which nobody else may write. The error names the entry that was
// refused; dir is then of no use. owner may be nil: then it is the caller.
func Unpack(ctx context.Context, from io.Reader, dir string, limits Limits, owner *Owner) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer root.Close()
	plain, err := inflate(from)
	if err != nil {
		return err
	}
	u := unpacking{root: root, owner: owner, from: &bounded{ctx: ctx, from: plain, left: limits.Bytes, limit: limits.Bytes}}
	return u.all(limits.Entries)
}

// inflate reads a gzip stream by its first bytes, and leaves all else as it is.
func inflate(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(from, 64<<10)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	if len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b {
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("read archive: it begins like a tar.gz and is none: %w", err)
	}
	return plain, nil
}

// errTooLarge ends the reading of an archive that inflates beyond its limit.
var errTooLarge = errors.New("it is too large unpacked")

// bounded reads no more than its limit, and no longer than its context lives.
type bounded struct {
	ctx         context.Context // of the one Unpack that it belongs to
	from        io.Reader
	left, limit int64
}

func (b *bounded) Read(p []byte) (n int, err error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errTooLarge, b.limit)
	}
	n, err = b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// unpacking is one archive on its way into a folder.
type unpacking struct {
	root  *os.Root
	owner *Owner
	from  *bounded
}

func (u unpacking) all(most int) error {
	entries := tar.NewReader(u.from)
	for n := 0; ; n++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return u.whole(n)
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return broken(err)
		}
		if n == most {
			return fmt.Errorf("the archive has more than %d entries", most)
		}
		if err := u.entry(h, entries); errors.Is(err, io.ErrUnexpectedEOF) {
			return broken(err)
		} else if err != nil {
			return fmt.Errorf("the archive's entry %.200q: %w", h.Name, err)
		}
	}
}

// whole reads what follows the last entry, so that a gzip checksum that does
// not fit is seen. Nothing at all is no archive.
func (u unpacking) whole(entries int) error {
	if entries == 0 {
		return errors.New("the archive holds no file")
	}
	if _, err := io.Copy(io.Discard, u.from); err != nil {
		return broken(err)
	}
	return nil
}

// broken says what a failed read means.
func broken(err error) error {
	switch {
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("it is neither a tar nor a tar.gz archive, or it is damaged: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the archive is cut short: %w", err)
	}
	return fmt.Errorf("read archive: %w", err)
}
