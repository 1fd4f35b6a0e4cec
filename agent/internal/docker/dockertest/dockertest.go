// Package dockertest gives tests a real Docker engine, images without a
// registry, and the docker command as a second opinion.
package dockertest

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
)

// Engine is the engine of this machine. Without one the test is skipped, or
// fails where nothing may be skipped (BECKON_CI=1).
func Engine(t testing.TB) *docker.Driver {
	t.Helper()
	driver, err := docker.New("")
	if err == nil {
		_, err = driver.Version(t.Context())
	}
	if err == nil {
		_, err = exec.LookPath("docker")
	}
	if err != nil {
		const fix = "this test needs Docker: install docker.io, start it, and run as a user who may use it"
		if os.Getenv("BECKON_CI") == "1" {
			t.Fatalf("%s: %v", fix, err)
		}
		t.Skipf("%s: %v", fix, err)
	}
	t.Cleanup(func() { _ = driver.Close() })
	return driver
}

// CLI runs the docker command and returns what it wrote.
func CLI(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Image compiles the Go program in folder to an image of nothing else, and
// removes it with the test. Each of changes is a line of a Dockerfile.
func Image(t testing.TB, folder string, changes ...string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "program"), "./"+folder)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", folder, err, out)
	}
	if out, err := exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, "image.tar"), "program").CombinedOutput(); err != nil {
		t.Fatalf("pack image: %v\n%s", err, out)
	}
	image := "beckon-test/" + strings.ToLower(rand.Text()) + ":1"
	args := []string{"import"}
	for _, change := range append([]string{`ENTRYPOINT ["/program"]`}, changes...) {
		args = append(args, "--change", change)
	}
	CLI(t, append(args, filepath.Join(dir, "image.tar"), image)...)
	t.Cleanup(func() { CLI(t, "image", "rm", "--force", image) })
	return image
}

// Node is the id of a node that nobody else has. What carries its label is
// removed with the test.
func Node(t testing.TB) string {
	node := "node_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		for _, id := range strings.Fields(CLI(t, "ps", "--all", "--quiet", "--filter", "label=beckon.node="+node)) {
			CLI(t, "rm", "--force", "--volumes", id)
		}
	})
	return node
}
