package app_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/app"
	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/process"
	"github.com/beckon-fleet/beckon/api"
)

// archiveFile is an archive and the far end that it is downloaded from.
type archiveFile []byte

// Open is app.Source.
func (a archiveFile) Open(_ context.Context, id string, offset int64) (io.ReadCloser, error) {
	if id != "file_1" {
		return nil, api.Errorf(api.NotFound, "there is no file %s", id)
	}
	return io.NopCloser(bytes.NewReader(a[offset:])), nil
}

// named is the archive as a command names it.
func (a archiveFile) named() *api.Archive {
	sum := sha256.Sum256(a)
	return &api.Archive{FileID: "file_1", SHA256: hex.EncodeToString(sum[:]), SizeBytes: int64(len(a))}
}

// packed is an archive of the test's program.
func packed(t *testing.T) archiveFile {
	t.Helper()
	program, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return pack(t, map[string]string{"program": program, "page/hello.txt": "hello"})
}

// compiled is the test's program, compiled once.
var compiled = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "beckon-program-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./testdata/instance")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile program: %w\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	return string(program), err
})

// pack makes a tar.gz of programs.
func pack(t *testing.T, files map[string]string) archiveFile {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// processes is a folder for instances that another user can reach. What runs
// from it ends with the test.
func processes(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("", "beckon-processes-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(top, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		endAll(t, filepath.Join(top, "apps"))
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(top, "apps")
}

// endAll removes all instances in a folder.
func endAll(t *testing.T, dir string) {
	t.Helper()
	d := driver(dir)
	all, err := d.List("")
	if err != nil {
		t.Error(err)
	}
	for _, p := range all {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := d.Remove(ctx, p.ID); err != nil {
			t.Error(err)
		}
	}
}

// driver drives the processes of a folder. Its supervisors are this test
// binary.
func driver(dir string) *process.Driver {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return process.New(process.Config{
		Dir: dir, Supervisor: []string{self, "supervise"}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

func (n *node) programs() *process.Driver { return driver(n.dir) }

// processes are the node's.
func (n *node) processes() []process.Process {
	n.t.Helper()
	all, err := n.programs().List("")
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

// process is that of p.
func (n *node) process(p api.DeployPayload) process.Process {
	n.t.Helper()
	found, _, err := n.programs().Look(p.DeploymentID)
	if err != nil {
		n.t.Fatal(err)
	}
	return found
}

// folder is the instance of p.
func (n *node) folder(p api.DeployPayload, names ...string) string {
	return filepath.Join(append([]string{n.dir, n.app, p.DeploymentID}, names...)...)
}

// supervisor is the process id of the one that looks after p.
func (n *node) supervisor(p api.DeployPayload) int {
	n.t.Helper()
	text, err := os.ReadFile(n.folder(p, "lock"))
	if err != nil {
		n.t.Fatal(err)
	}
	pid := 0
	for _, c := range strings.TrimSpace(string(text)) {
		pid = pid*10 + int(c-'0')
	}
	return pid
}

func (n *node) kill(pid int) {
	n.t.Helper()
	if pid <= 1 {
		n.t.Fatalf("no process to kill: %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
}

// wrote waits until the log of p has a line.
func (n *node) wrote(p api.DeployPayload, want string) {
	n.t.Helper()
	n.until("it has written "+want, func() bool {
		lines, err := n.programs().Lines(p.DeploymentID, 1000)
		return err == nil && slices.ContainsFunc(lines, func(l process.Line) bool { return l.Line == want })
	})
}

// mortalAgent is the variable that makes the test binary an agent which
// deploys and then waits to be killed. Its value is the folder of processes,
// the node, the app and the archive's file.
const mortalAgent = "BECKON_TEST_MORTAL_AGENT"

func beMortalAgent() {
	word := strings.Split(os.Getenv(mortalAgent), ",")
	data, err := os.ReadFile(word[3])
	if err != nil {
		panic(err)
	}
	engine, err := docker.New("unix:///nowhere/docker.sock")
	if err != nil {
		panic(err)
	}
	s := app.New(app.Config{
		Node: word[1], Docker: engine, Process: driver(word[0]), Source: archiveFile(data), Trace: filepath.Join(word[0], "containers"),
	})
	_, err = s.Deploy(context.Background(), api.DeployPayload{
		DeploymentID: "dep_mortal01", AppID: word[2], App: "web", Revision: 1,
		AppSpec: api.AppSpec{Archive: archiveFile(data).named(), ObserveS: 1, Command: []string{"./program", "beat", "100ms", "40", "exit", "9"}},
	})
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("deployed\n")
	select {}
}
