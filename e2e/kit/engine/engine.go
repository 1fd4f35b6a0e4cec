// Package engine gives black-box tests the container engine of this machine:
// an image without a registry, and a witness of what containers do.
package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/e2e/kit/build"
	"github.com/beckon-fleet/beckon/e2e/kit/need"
)

// program is what images hold: its behaviour is its arguments.
const program = "./agent/internal/app/testdata/instance"

// Need skips a test where no engine answers. Where nothing may be skipped
// (BECKON_CI=1) the test fails.
func Need(t testing.TB) {
	t.Helper()
	if _, err := Docker("version", "--format", "{{.Server.Version}}"); err != nil {
		need.Missing(t, "this test needs Docker: install docker.io, start it, and run as a user who may use it: "+err.Error())
	}
}

// Docker runs the docker command and returns what it wrote.
func Docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Image is one image for a run of tests. The zero value makes it at the first
// use; nobody else has its name.
type Image struct {
	once sync.Once
	name string
	err  error
}

// Name makes the image where that was not done, and returns its name. An
// instance without a command of its own says "begun" and serves on $PORT.
func (i *Image) Name() (string, error) {
	i.once.Do(func() {
		name := "beckon-e2e/" + strings.ToLower(rand.Text()) + ":1"
		if i.err = importImage(name); i.err == nil {
			i.name = name
		}
	})
	return i.name, i.err
}

// Remove removes the image, and before it whatever still runs it.
func (i *Image) Remove() error {
	if i.name == "" {
		return nil
	}
	left, err := Docker("ps", "--all", "--quiet", "--filter", "ancestor="+i.name)
	if err != nil {
		return err
	}
	if err := removeContainers(left); err != nil {
		return err
	}
	_, err = Docker("image", "rm", "--force", i.name)
	return err
}

func importImage(name string) error {
	dir, err := os.MkdirTemp("", "beckon-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := build.Root()
	if err != nil {
		return err
	}
	compile := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "program"), program)
	compile.Dir, compile.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	tar := exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, "image.tar"), "program")
	for _, cmd := range []*exec.Cmd{compile, tar} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
		}
	}
	_, err = Docker("import", "--change", `ENTRYPOINT ["/program"]`, "--change", `CMD ["say", "begun", "serve"]`,
		"--change", "ENV PORT=8080 TEXT=hello", filepath.Join(dir, "image.tar"), name)
	return err
}

// Containers lists the ids of a node's containers, those that have ended too.
func Containers(node string, more ...string) ([]string, error) {
	args := []string{"ps", "--all", "--quiet", "--no-trunc", "--filter", "label=beckon.node=" + node}
	for _, filter := range more {
		args = append(args, "--filter", filter)
	}
	ids, err := Docker(args...)
	return strings.Fields(ids), err
}

// Clear removes all containers of a node.
func Clear(node string) error {
	ids, err := Docker("ps", "--all", "--quiet", "--filter", "label=beckon.node="+node)
	if err != nil {
		return err
	}
	return removeContainers(ids)
}

// removeContainers is content when somebody else has removed them meanwhile.
func removeContainers(ids string) (all error) {
	for _, id := range strings.Fields(ids) {
		if _, err := Docker("rm", "--force", "--volumes", id); err != nil && !strings.Contains(err.Error(), "No such container") {
			all = errors.Join(all, err)
		}
	}
	return all
}
