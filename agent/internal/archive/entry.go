package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// entry writes one entry, or says why not.
func (u unpacking) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // remarks on the whole archive
	}
	name, err := u.place(h)
	if err != nil || name == "." {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name, h.FileInfo().Mode())
	case tar.TypeReg:
		err = u.file(name, h, content)
	case tar.TypeSymlink:
		err = u.symlink(name, h.Linkname)
	case tar.TypeLink:
		err = u.hardlink(name, h.Linkname)
	default:
		return fmt.Errorf("it is of a kind that is not unpacked (%q): only files, folders and links are", h.Typeflag)
	}
	if errors.Is(err, fs.ErrExist) {
		return errors.New("it is in the archive twice")
	}
	if err != nil {
		return err
	}
	return u.own(name)
}

// place is where an entry goes. Its parents are made, and must be folders: one
// that is a link would lead elsewhere.
func (u unpacking) place(h *tar.Header) (name string, err error) {
	switch {
	case strings.ContainsRune(h.Name, 0):
		return "", errors.New("its name holds a NUL")
	case path.IsAbs(h.Name):
		return "", errors.New("its name is an absolute path")
	case hasParent(h.Name):
		return "", errors.New("its name leads out of the folder (..)")
	}
	name = path.Clean(h.Name)
	if name == "." && h.Typeflag != tar.TypeDir {
		return "", errors.New("it has no name")
	}
	for i, c := range name {
		if c != '/' {
			continue
		}
		if err := u.folder(name[:i], 0o755); err != nil {
			return "", err
		}
	}
	return name, nil
}

// hasParent reports whether a path goes up anywhere.
func hasParent(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// folder makes a folder, or finds it made.
func (u unpacking) folder(name string, mode fs.FileMode) error {
	err := u.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, err := u.root.Lstat(name)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%q is in the archive as a file or a link, and as a folder", name)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := u.root.Chmod(name, mode&0o755|0o700); err != nil {
		return err
	}
	return u.own(name)
}

// file writes a file that must be new. Its mode keeps nothing but who may
// read and run it.
func (u unpacking) file(name string, h *tar.Header, content io.Reader) error {
	if h.Size > u.from.left {
		return fmt.Errorf("%w: more than %d bytes", errTooLarge, u.from.limit)
	}
	file, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err == nil {
		err = file.Chmod(h.FileInfo().Mode()&0o755 | 0o600)
	}
	return errors.Join(err, file.Close())
}

// symlink makes a link that stays inside. Its target may go up from where it
// stands and then down, but not up again: below a second link that would lead
// elsewhere than it looks.
func (u unpacking) symlink(name, target string) error {
	rest := target
	for strings.HasPrefix(rest, "../") || strings.HasPrefix(rest, "./") {
		_, rest, _ = strings.Cut(rest, "/")
		rest = strings.TrimLeft(rest, "/")
	}
	inside := path.Join(path.Dir(name), target)
	switch {
	case target == "" || strings.ContainsRune(target, 0):
		return errors.New("it is a link without a target")
	case path.IsAbs(target) || hasParent(inside) || rest != ".." && hasParent(rest):
		return fmt.Errorf("it is a link that leads out of the folder, to %.200q", target)
	}
	return u.root.Symlink(target, name)
}

// hardlink gives a file that is unpacked already a second name.
func (u unpacking) hardlink(name, target string) error {
	if path.IsAbs(target) || hasParent(target) || strings.ContainsRune(target, 0) {
		return fmt.Errorf("it is a link that leads out of the folder, to %.200q", target)
	}
	target = path.Clean(target)
	for i, c := range target {
		if c != '/' {
			continue
		}
		if info, err := u.root.Lstat(target[:i]); err != nil || !info.IsDir() {
			return fmt.Errorf("it is a link to %.200q, which is no file before it in the archive", target)
		}
	}
	if info, err := u.root.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("it is a link to %.200q, which is no file before it in the archive", target)
	}
	return u.root.Link(target, name)
}

func (u unpacking) own(name string) error {
	if u.owner == nil {
		return nil
	}
	return u.root.Lchown(name, u.owner.UID, u.owner.GID)
}
