package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/beckon-fleet/beckon/internal/cli"
)

// ignoreFile names what stays out of a package.
const ignoreFile = ".beckonignore"

// packed is a folder as a tar.gz, in a temporary file that is at its beginning.
type packed struct {
	file  *os.File
	size  int64
	sum   []byte // sha256
	files int
}

func (p *packed) remove() {
	p.file.Close() // it was only read
	os.Remove(p.file.Name())
}

// pack makes the same bytes of the same files, whoever packs them and when:
// names in order, no times, no owners, of the modes only who may run a file.
func pack(ctx context.Context, dir string) (p *packed, err error) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return nil, cli.Usagef("app push: %q is not a folder", dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // the one link that is followed
		return nil, fmt.Errorf("find folder: %w", err)
	}
	ignored, err := readIgnored(dir)
	if err != nil {
		return nil, err
	}
	temp, err := os.CreateTemp("", "beckon-push-")
	if err != nil {
		return nil, fmt.Errorf("make temporary file: %w", err)
	}
	p = &packed{file: temp}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	return p, p.fill(ctx, dir, ignored)
}

func (p *packed) fill(ctx context.Context, dir string, ignored ignored) error {
	sum := sha256.New()
	compressed := gzip.NewWriter(io.MultiWriter(p.file, sum))
	t := &packing{dir: dir, ignored: ignored, to: tar.NewWriter(compressed)}
	err := filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		return t.visit(at, entry)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	if t.files == 0 {
		return cli.Usagef("app push: there is no file in %s that %s does not leave out", dir, ignoreFile)
	}
	if err := errors.Join(t.to.Close(), compressed.Close()); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return p.finish(t.files, sum)
}

func (p *packed) finish(files int, sum hash.Hash) (err error) {
	p.files, p.sum = files, sum.Sum(nil)
	if p.size, err = p.file.Seek(0, io.SeekCurrent); err != nil {
		return fmt.Errorf("measure package: %w", err)
	}
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind package: %w", err)
	}
	return nil
}

// packing is a package being made.
type packing struct {
	dir     string
	ignored ignored
	to      *tar.Writer
	files   int
}

func (t *packing) visit(at string, entry fs.DirEntry) error {
	relative, err := filepath.Rel(t.dir, at)
	if err != nil || relative == "." {
		return err
	}
	name := filepath.ToSlash(relative)
	if t.ignored.match(name, entry.IsDir()) {
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	switch kind := entry.Type(); {
	case kind.IsDir():
		return t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
	case kind&fs.ModeSymlink != 0:
		target, err := os.Readlink(at)
		if err != nil {
			return err
		}
		return t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
	case kind.IsRegular():
		t.files++
		return t.file(name, at)
	}
	return fmt.Errorf("%s is neither a file nor a folder nor a link; name it in %s", name, ignoreFile)
}

func (t *packing) file(name, at string) error {
	from, err := os.Open(at)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s was replaced while it was packed; try again", name)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	n, err := io.Copy(t.to, from)
	if err == nil && n < info.Size() || errors.Is(err, tar.ErrWriteTooLong) {
		return fmt.Errorf("%s was changed while it was packed; try again", name)
	}
	return err
}

// ignored are the patterns of an ignore file.
type ignored []string

func readIgnored(dir string) (all ignored, err error) {
	text, err := os.ReadFile(filepath.Join(dir, ignoreFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", ignoreFile, err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := path.Match(line, ""); err != nil || strings.HasPrefix(line, "!") || strings.Contains(line, "**") {
			return nil, cli.Usagef("app push: %s: %q is no pattern; they are names and paths with *, ? and [a-z]", ignoreFile, line)
		}
		all = append(all, line)
	}
	return all, nil
}

// match reports whether a path stays out. A pattern without a slash is of
// names anywhere, one with a slash of paths from the top; a slash at the end
// is of folders only.
func (all ignored) match(name string, folder bool) bool {
	if name == ignoreFile {
		return true
	}
	for _, pattern := range all {
		plain := strings.TrimSuffix(pattern, "/")
		if plain != pattern && !folder {
			continue
		}
		of := path.Base(name)
		if strings.Contains(plain, "/") {
			plain, of = strings.TrimPrefix(plain, "/"), name
		}
		if hit, err := path.Match(plain, of); hit && err == nil { // it was tried when it was read
			return true
		}
	}
	return false
}
