// Package build makes the programs that black-box tests run, once for a run
// of tests.
package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Programs are the built programs. The zero value builds at the first use.
type Programs struct {
	plain, faulty folder
}

type folder struct {
	once sync.Once
	path string
	err  error
}

// Dir is a folder with the programs beckon and beckon-agent, as they are
// shipped.
func (p *Programs) Dir(t testing.TB) string {
	t.Helper()
	return p.plain.get(t)
}

// Faulty is like Dir; its programs die at the point of a command's life that
// BECKON_FAULT names.
func (p *Programs) Faulty(t testing.TB) string {
	t.Helper()
	return p.faulty.get(t, "-tags=faults")
}

// Remove removes what was built.
func (p *Programs) Remove() error {
	for _, f := range []*folder{&p.plain, &p.faulty} {
		if f.path == "" {
			continue
		}
		if err := os.RemoveAll(f.path); err != nil {
			return fmt.Errorf("remove programs: %w", err)
		}
	}
	return nil
}

func (f *folder) get(t testing.TB, flags ...string) string {
	t.Helper()
	f.once.Do(func() {
		if f.path, f.err = os.MkdirTemp("", "beckon-programs-"); f.err == nil {
			f.err = compile(f.path, flags)
		}
	})
	if f.err != nil {
		t.Fatalf("build the programs: %v", f.err)
	}
	return f.path
}

func compile(to string, flags []string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", to}, flags...)
	env := append(os.Environ(), "CGO_ENABLED=0")
	if raced {
		args, env = append(args, "-race"), os.Environ()
	}
	cmd := exec.Command("go", append(args, "./server/cmd/beckon", "./agent/cmd/beckon-agent")...)
	cmd.Dir, cmd.Env = root, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Root is the top folder of this repository.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the working folder")
		}
	}
}
