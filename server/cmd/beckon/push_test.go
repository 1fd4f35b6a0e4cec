package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// tree makes files of texts; a name that ends with / is a folder, with * a file
// that can be run, and a text that begins with -> is a link.
func tree(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, strings.TrimRight(name, "*"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, link := strings.CutPrefix(text, "->"); {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		case link:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "*"):
			err = os.WriteFile(path, []byte(text), 0o710)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// entries lists what is in a package.
func entries(t *testing.T, data []byte) (all []string) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	from := tar.NewReader(plain)
	for {
		h, err := from.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s tells who packed it, and when: %+v", h.Name, h)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%o %s %s%s", h.Mode, h.Name, text, h.Linkname)))
	}
}

func packs(t *testing.T, dir string) []byte {
	t.Helper()
	p, err := pack(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.remove()
	data, err := io.ReadAll(p.file)
	sum := sha256.Sum256(data)
	if err != nil || int64(len(data)) != p.size || !bytes.Equal(sum[:], p.sum) {
		t.Errorf("%d bytes, said are %d, %v", len(data), p.size, err)
	}
	return data
}

func TestPackIsTheSameForTheSameFiles(t *testing.T) {
	files := map[string]string{
		"run*": "#!/bin/sh", "b/a": "1", "b/c/": "", "a.txt": "2", "link": "->b/a", "out": "->/etc/passwd",
		".beckonignore": "# what is made\n\n*.log\nbuild/\n/doc/*.md\nb/x", "x.log": "-", "b/y.log": "-", "build/x": "-", "b/build/x": "-",
		"doc/a.md": "-", "doc/b.txt": "3", "b/x": "-", "x": "4", "c/build": "5",
	}
	first := tree(t, files)
	data := packs(t, first)
	want := lines(
		"644 a.txt 2", "755 b/", "644 b/a 1", "755 b/c/", "755 c/", "644 c/build 5", "755 doc/", "644 doc/b.txt 3",
		"777 link b/a", "777 out /etc/passwd", "755 run #!/bin/sh", "644 x 4")
	if got := lines(entries(t, data)...); got != want {
		t.Errorf("packed\n%s\nwant\n%s", got, want)
	}
	second := tree(t, files)
	if err := os.Chtimes(filepath.Join(second, "a.txt"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	by := filepath.Join(t.TempDir(), "by")
	if err := os.Symlink(second, by); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packs(t, by), data) {
		t.Error("the same files make other bytes")
	}
}

func TestPushThatMakesNoSense(t *testing.T) {
	f := newFar(t)
	answers(f, api.GetApp, api.Errorf(api.NotFound, "there is no app"))
	full := tree(t, map[string]string{"a": "1"})
	for line, want := range map[string]string{
		"app push web --node n --command x " + tree(t, nil):                                                "there is no file in",
		"app push web --node n --command x " + tree(t, map[string]string{"a/": ""}):                        "there is no file in",
		"app push web --node n --command x " + tree(t, map[string]string{".beckonignore": "a*", "ab": ""}): "there is no file in",
		"app push web --node n --command x " + tree(t, map[string]string{".beckonignore": "[", "a": ""}):   `"[" is no pattern`,
		"app push web --node n --command x " + tree(t, map[string]string{".beckonignore": "!a", "a": ""}):  `"!a" is no pattern`,
		"app push web --node n --command x /nowhere":                                                       "is not a folder",
		"app push web --node n --command x " + filepath.Join(full, "a"):                                    "is not a folder",
		"app push web --node n " + full:                                                                    "--command is missing",
		"app push web --command x " + full:                                                                 "either --node or --label",
		"app push web --node n --command x --publish 1 " + full:                                            "publish needs port",
		"app push web": "DIR is missing",
		"app put web --node n --image x --archive file_1": "do not go together",
		"app rollback web --revision 0":                   "--revision: 0 is not above 0",
	} {
		code, out, note := f.run(line)
		if code != 2 || out != "" || !strings.Contains(note, want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", line, code, out, note, want)
		}
	}
	for _, sent := range f.sent {
		if !strings.HasPrefix(sent, "GET ") {
			t.Errorf("sent %q", sent)
		}
	}
}

const idFile = "file_019ad5a0-0000-7000-8000-000000000041"

// keeper takes files as a server does.
func (f *far) keeper(t *testing.T) {
	f.mux.HandleFunc("PUT /api/v1/files", func(w http.ResponseWriter, r *http.Request) {
		_, body, _ := strings.Cut(f.sent[len(f.sent)-1], "/api/v1/files ")
		f.sent[len(f.sent)-1] = "PUT /api/v1/files"
		req := api.PutFileRequest{Digest: r.Header.Get("Content-Digest")}
		sum, err := req.SHA256()
		if err != nil || sum == "" || body == "" || r.ContentLength <= 0 {
			t.Errorf("digest %q, %d bytes, %v", req.Digest, r.ContentLength, err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(api.File{ID: idFile, SHA256: sum, SizeBytes: r.ContentLength})
	})
}

func TestPush(t *testing.T) {
	f := newFar(t)
	f.keeper(t)
	dir := tree(t, map[string]string{"run*": "x", "a": "1"})
	pushed := webApp()
	pushed.Spec.Image, pushed.Spec.Archive = "", &api.Archive{FileID: idFile, SHA256: hex.EncodeToString(make([]byte, 32)), SizeBytes: 1 << 20}
	answers(f, api.GetApp, api.Errorf(api.NotFound, "there is no app"), pushed, pushed, webApp())
	answers(f, api.PutApp, api.PutAppResponse{App: pushed})
	archive := `{"archive":{"file_id":"` + idFile + `"},`
	for _, c := range []struct{ line, want string }{
		{"app push web " + dir + " --node web-1 --command ./run~--fast", archive + `"command":["./run","--fast"],"node":"web-1"}`},
		{"app push web " + dir, archive + `"command":["serve","--dir","/srv"],"env":{"GREETING":"hello, world","MODE":"fast"},"port":8080,"resources":{"cpu_cores":0.5,"mem_bytes":268435456},"labels":{"role":"web"}}`},
		{"app push web " + dir + " --env A=1 --node web-2 --memory 1g", archive + `"command":["serve","--dir","/srv"],"env":{"A":"1"},"port":8080,"resources":{"cpu_cores":0.5,"mem_bytes":1073741824},"node":"web-2"}`},
		{"app push web " + dir + " --arg x", archive + `"command":["x"],"labels":{"role":"web"}}`},
	} {
		f.sent = nil
		code, out, note := f.run(c.line)
		if code != 0 || !strings.HasPrefix(out, "app web is stored: "+idFile+" (2 files, ") || !strings.HasSuffix(out, " on nodes with role=web\n") || note != "run it with: beckon deploy web\n" {
			t.Errorf("%s: exit %d, %q, %q", c.line, code, out, note)
		}
		if want := "PUT /api/v1/apps/web " + c.want; len(f.sent) != 3 || f.sent[1] != "PUT /api/v1/files" || f.sent[2] != want {
			t.Errorf("%s:\nsent %q\nwant %s", c.line, f.sent, want)
		}
	}
	f.sent = nil
	code, out, note := f.run("app put web --archive " + idFile + " --command x --node n")
	if code != 0 || !strings.HasPrefix(out, "app web is stored: "+idFile+" on ") || f.sent[0] != "PUT /api/v1/apps/web "+archive+`"command":["x"],"node":"n"}` {
		t.Errorf("put: exit %d, %q, %q, sent %q", code, out, note, f.sent)
	}
}

func TestPushRefused(t *testing.T) {
	f := newFar(t)
	answers(f, api.GetApp, webApp())
	full := true
	f.mux.HandleFunc("PUT /api/v1/files", func(w http.ResponseWriter, _ *http.Request) {
		if full {
			problem(w, api.Errorf(api.StorageFull, "the server's disk is full"))
			return
		}
		io.WriteString(w, "<html>")
	})
	line := "app push web --command x " + tree(t, map[string]string{"a": "1"})
	if code, out, note := f.run(line); code != 6 || out != "" || !strings.Contains(note, "disk is full") {
		t.Errorf("full: exit %d, %q, %q", code, out, note)
	}
	full = false
	if code, out, note := f.run(line); code != 6 || out != "" || !strings.Contains(note, "not an answer of the control plane") {
		t.Errorf("a proxy: exit %d, %q, %q", code, out, note)
	}
}

func TestFiles(t *testing.T) {
	f := newFar(t)
	file := api.File{ID: idFile, SHA256: "ab12", SizeBytes: 3 << 20, CreatedAt: *before(time.Hour)}
	answers(f, api.ListFiles, api.Page[api.File]{Items: []api.File{file}}, api.Page[api.File]{Items: []api.File{}})
	answers(f, api.DeleteFile, file, api.Errorf(api.FileInUse, "the file is needed by web"))
	code, out, note := f.run("file list")
	expect(t, "file list", code, out, note, 0, lines(
		"FILE                                       SIZE   UPLOADED  SHA256",
		idFile+"  3 MiB  1h ago    ab12"), "")
	code, out, note = f.run("file list")
	expect(t, "none", code, out, note, 0, "", "there are no files; upload a folder with: beckon app push APP DIR\n")
	code, out, note = f.run("file remove " + idFile)
	expect(t, "file remove", code, out, note, 0, "file "+idFile+" is removed\n", "")
	code, out, note = f.run("file remove " + idFile)
	expect(t, "in use", code, out, note, 5, "", "beckon: the file is needed by web\n")
}

func TestRollbackAndHistory(t *testing.T) {
	f := newFar(t)
	now := deployment(idDep1, "web-1", api.DeploymentRunning, "")
	old := deployment(idDep2, "web-1", api.DeploymentReplaced, "")
	old.Revision, old.Spec = 3, api.AppSpec{Archive: &api.Archive{FileID: idFile}}
	second := deployment("dep_2", "web-2", api.DeploymentFailed, "")
	answers(f, api.RollbackApp, api.DeployAppResponse{Revision: 5, Items: []api.Deployment{now}, Awaited: true}, api.Errorf(api.NoEarlierRevision, "no revision has run"))
	answers(f, api.GetApp, webApp())
	answers(f, api.ListDeployments, api.Page[api.Deployment]{Items: []api.Deployment{second, now, old}}, api.Page[api.Deployment]{})
	code, out, note := f.run("app rollback web --revision 3")
	if code != 0 || !strings.Contains(out, "web-1  running  5") || f.sent[0] != `POST /api/v1/apps/web/rollback {"revision":3}` {
		t.Errorf("exit %d, %q, %q, sent %q", code, out, note, f.sent)
	}
	code, out, note = f.run("app rollback web")
	if code != 5 || out != "" || f.sent[1] != `POST /api/v1/apps/web/rollback {}` || !strings.Contains(note, "no revision has run") {
		t.Errorf("exit %d, %q, %q, sent %q", code, out, note, f.sent)
	}
	code, out, note = f.run("app history web")
	expect(t, "history", code, out, note, 0, lines(
		"REVISION  MADE OF                                    DEPLOYMENTS          DEPLOYED",
		"4         registry.example/web:4                     1 failed, 1 running  1m ago",
		"3         "+idFile+"  1 replaced           1m ago"), "")
	code, out, note = f.run("app history web")
	expect(t, "no history", code, out, note, 0, "", "web was never deployed; run it with: beckon deploy web\n")
}
