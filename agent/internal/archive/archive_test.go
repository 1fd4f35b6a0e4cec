package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/beckon-fleet/beckon/agent/internal/archive"
)

type entry = tar.Header

func file(name, text string) entry {
	return entry{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), Linkname: text}
}

func dir(name string) entry { return entry{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func link(name, to string) entry {
	return entry{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}

func hard(name, to string) entry { return entry{Name: name, Typeflag: tar.TypeLink, Linkname: to} }

// pack makes a tar. The content of a file is its Linkname.
func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		text := ""
		if e.Typeflag == tar.TypeReg {
			text, e.Linkname = e.Linkname, ""
		}
		if err := w.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func squeeze(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func limits() archive.Limits { return archive.Limits{Bytes: 1 << 20, Entries: 20} }

func unpack(t testing.TB, data []byte) (dir string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "fresh")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, archive.Unpack(t.Context(), bytes.NewReader(data), dir, limits(), nil)
}

func TestUnpack(t *testing.T) {
	data := pack(t,
		dir("./"), entry{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}},
		entry{Name: "run", Typeflag: tar.TypeReg, Mode: 0o6777, Linkname: "#!", Size: 2, Uid: 1234, Gid: 5, Uname: "root"},
		file("a/b/c.txt", "deep"), entry{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o1777},
		link("a/up", "../run"), link("a/b/top", "../.."), link("here", "."), link("there", "./a/b"),
		hard("a/again", "run"), entry{Name: "secret", Typeflag: tar.TypeReg, Mode: 0},
		file(strings.Repeat("long/", 40)+"name", "x"),
	)
	for name, data := range map[string][]byte{"tar": data, "tar.gz": squeeze(t, data)} {
		t.Run(name, func(t *testing.T) {
			dir, err := unpack(t, data)
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{
				"run": "-rwxr-xr-x", "a": "drwxr-xr-x", "a/b/c.txt": "-rw-r--r--", "secret": "-rw-------", "a/again": "-rwxr-xr-x",
			} {
				info, err := os.Lstat(filepath.Join(dir, path))
				if err != nil || info.Mode().String() != want || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
					t.Errorf("%s: %v, %v", path, info, err)
				}
			}
			for path, want := range map[string]string{"a/up": "#!", "there/c.txt": "deep", "a/b/top/here/run": "#!"} {
				if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v", path, got, err)
				}
			}
		})
	}
}

// hostile are archives that must be refused, and a word of the reason.
func hostile(t testing.TB) map[string]struct {
	data []byte
	want string
} {
	type bad = struct {
		data []byte
		want string
	}
	big := file("big", strings.Repeat("x", 2<<20))
	var many []entry
	for i := range 25 {
		many = append(many, file("f"+string(rune('a'+i)), ""))
	}
	all := map[string]bad{
		"absolute":             {pack(t, file("/etc/passwd", "x")), "absolute path"},
		"parent":               {pack(t, file("../x", "x")), "(..)"},
		"parent inside":        {pack(t, file("a/../../x", "x")), "(..)"},
		"parent that is back":  {pack(t, file("a/../x", "x")), "(..)"},
		"link out":             {pack(t, link("l", "../x")), "leads out"},
		"link to root":         {pack(t, link("l", "/etc")), "leads out"},
		"link out later":       {pack(t, link("a/l", "../../x")), "leads out"},
		"link by a link":       {pack(t, dir("a/b"), link("a/b/up", "../.."), link("m", "a/b/up/../x")), "leads out"},
		"link of nothing":      {pack(t, link("l", "")), "without a target"},
		"through a link":       {pack(t, link("l", "."), file("l/x", "x")), "as a folder"},
		"through a chain":      {pack(t, dir("d"), link("l", "d"), link("m", "l"), file("m/x", "x")), "as a folder"},
		"link over a folder":   {pack(t, file("d/x", "x"), link("d", ".")), "twice"},
		"folder over a link":   {pack(t, link("d", "."), dir("d")), "as a folder"},
		"file twice":           {pack(t, file("x", "1"), file("x", "2")), "twice"},
		"file over a link":     {pack(t, file("x", "1"), link("l", "x"), file("l", "2")), "twice"},
		"below a file":         {pack(t, file("x", "1"), file("x/y", "2")), "as a folder"},
		"hard link out":        {pack(t, hard("h", "../x")), "leads out"},
		"hard link to root":    {pack(t, hard("h", "/etc/passwd")), "leads out"},
		"hard link to nothing": {pack(t, hard("h", "x")), "no file before it"},
		"hard link to a link":  {pack(t, file("x", "1"), link("l", "x"), hard("h", "l")), "no file before it"},
		"hard link by a link":  {pack(t, file("d/x", "1"), link("l", "d"), hard("h", "l/x")), "no file before it"},
		"device":               {pack(t, entry{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), "of a kind"},
		"disk":                 {pack(t, entry{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}), "of a kind"},
		"fifo":                 {pack(t, entry{Name: "pipe", Typeflag: tar.TypeFifo}), "of a kind"},
		"no name":              {pack(t, file(".", "x")), "no name"},
		"too large":            {pack(t, big), "too large"},
		"bomb":                 {squeeze(t, pack(t, big)), "too large"},
		"many":                 {pack(t, many...), "more than 20 entries"},
		"nothing":              {nil, "no file"},
		"empty":                {pack(t), "no file"},
		"text":                 {[]byte(strings.Repeat("hello", 200)), "neither a tar"},
		"zip":                  {append([]byte("PK\x03\x04"), make([]byte, 600)...), "neither a tar"},
		"no gzip":              {[]byte("\x1f\x8bxxxxxxxxxxxxxxxx"), "begins like a tar.gz"},
		"cut":                  {squeeze(t, pack(t, file("x", strings.Repeat("x", 5000))))[:60], "cut short"},
		"cut tar":              {pack(t, file("x", strings.Repeat("x", 5000)))[:2000], "cut short"},
		"endless end":          {squeeze(t, append(pack(t, file("x", "x")), make([]byte, 2<<20)...)), "too large"},
	}
	wrong := squeeze(t, pack(t, file("x", "x")))
	wrong[len(wrong)-6] ^= 1
	all["wrong checksum"] = bad{wrong, "checksum"}
	return all
}

func TestRefuses(t *testing.T) {
	for name, c := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			dir, err := unpack(t, c.data)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			alone(t, dir)
		})
	}
}

// alone checks that nothing was written beside the folder, and that nothing in
// it leads out.
func alone(t testing.TB, dir string) {
	t.Helper()
	beside, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(beside) != 1 {
		t.Fatalf("beside the folder there is %v, %v", beside, err)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if kind := info.Mode() &^ fs.ModePerm; kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink {
			t.Errorf("%s is %v", path, info.Mode())
		}
		to, err := filepath.EvalSymlinks(path)
		if err == nil && to != dir && !strings.HasPrefix(to, dir+"/") {
			t.Errorf("%s leads to %s", path, to)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can give files away; here they belong to the caller, which TestUnpack checks")
		return
	}
	to := t.TempDir()
	data := pack(t, file("d/x", "1"), link("l", "d"), hard("h", "d/x"))
	if err := archive.Unpack(t.Context(), bytes.NewReader(data), to, limits(), &archive.Owner{UID: 65534, GID: 65533}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/x", "l", "h"} {
		info, err := os.Lstat(filepath.Join(to, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 || info.Sys().(*syscall.Stat_t).Gid != 65533 {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := archive.Unpack(ctx, bytes.NewReader(pack(t, file("x", "x"))), t.TempDir(), limits(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("it went on: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	for _, c := range hostile(f) {
		if len(c.data) < 64<<10 {
			f.Add(c.data)
		}
	}
	f.Add(pack(f, file("a/b", "x"), link("a/l", "../a"), hard("h", "a/b")))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir, err := unpack(t, data)
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		alone(t, dir)
	})
}
