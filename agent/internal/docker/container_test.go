package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/docker/dockertest"
)

func TestContainer(t *testing.T) {
	d := dockertest.Engine(t)
	image := dockertest.Image(t, filepath.Join("..", "app", "testdata", "instance"))
	node := dockertest.Node(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	if here, err := d.HasImage(ctx, image); err != nil || !here {
		t.Fatalf("the image is there: %t, %v", here, err)
	}
	if here, err := d.HasImage(ctx, "beckon-test/nothing:1"); err != nil || here {
		t.Errorf("an image that nobody made is there: %t, %v", here, err)
	}
	spec := docker.Spec{
		Name: "beckon-test-" + node, Image: image, Command: []string{"say", "hello", "wait", "1h"},
		Labels: map[string]string{"beckon.node": node}, Grace: time.Second,
	}
	id, err := d.Create(ctx, spec)
	must(err)
	if _, err := d.Create(ctx, spec); !errors.Is(err, docker.NameTaken) {
		t.Errorf("the second of the name is %v", err)
	}
	c, err := d.Inspect(ctx, spec.Name)
	must(err)
	if c.ID != id || c.State != docker.Created || !c.StartedAt.IsZero() || c.Exit != nil || c.Restart != docker.Never {
		t.Errorf("before its start it is %+v", c)
	}
	must(d.Start(ctx, id))
	must(d.Start(ctx, id))
	must(d.SetRestart(ctx, id, docker.OnFailure))
	all, err := d.List(ctx, map[string]string{"beckon.node": node})
	must(err)
	if len(all) != 1 || all[0].State != docker.Running || all[0].Restart != docker.OnFailure || all[0].StartedAt.IsZero() || all[0].Labels["beckon.node"] != node {
		t.Errorf("the list is %+v", all)
	}
	must(d.Stop(ctx, id, time.Second))
	must(d.Stop(ctx, id, time.Second))
	c, err = d.Inspect(ctx, id)
	must(err)
	if c.State != docker.Exited || c.Exit == nil || c.Exit.OOM || c.Exit.At.Before(c.StartedAt) {
		t.Errorf("after its stop it is %+v, %+v", c, c.Exit)
	}
	if text, err := d.Logs(ctx, id, 10); err != nil || text != "hello\n" {
		t.Errorf("it wrote %q, %v", text, err)
	}
	must(d.Remove(ctx, id))
	must(d.Remove(ctx, id))
	if _, err := d.Inspect(ctx, id); !errors.Is(err, docker.NotFound) {
		t.Errorf("after its removal it is %v", err)
	}
}

// Registries that fail in their ways: Docker takes those on this machine
// without TLS.
func TestPull(t *testing.T) {
	d := dockertest.Engine(t)
	registry := func(t *testing.T, status int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://") + "/web:1"
	}
	for _, c := range []struct {
		status int
		body   string
		want   docker.Reason
	}{
		{404, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`, docker.ImageUnknown},
		{401, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, docker.ImageDenied},
		{403, `{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`, docker.ImageDenied},
		{429, `{"errors":[{"code":"TOOMANYREQUESTS","message":"pull rate limit"}]}`, docker.RegistryBusy},
		{503, `out of order`, docker.RegistryBusy},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			image := registry(t, c.status, c.body)
			err := d.Pull(t.Context(), image)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), image) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}

	t.Run("nobody there", func(t *testing.T) {
		if err := d.Pull(t.Context(), "127.0.0.1:1/web:1"); !errors.Is(err, docker.RegistryUnreachable) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("works", func(t *testing.T) {
		image := serveImage(t, nil)
		if err := d.Pull(t.Context(), image); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dockertest.CLI(t, "image", "rm", image) })
		if here, err := d.HasImage(t.Context(), image); err != nil || !here {
			t.Errorf("the image is here: %t, %v", here, err)
		}
	})

	t.Run("hangs in the middle of a layer", func(t *testing.T) {
		release := make(chan struct{})
		image := serveImage(t, release)
		defer close(release)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Pull(ctx, image); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// serveImage is a registry with one image of one layer. With a channel it
// stops in the middle of the layer until the channel is closed.
func serveImage(t *testing.T, release <-chan struct{}) (image string) {
	layer := randomLayer(t)
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[%q]}}`, runtime.GOARCH, digest(layer))
	const docker = "application/vnd.docker."
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"`+docker+`distribution.manifest.v2+json",
		"config":{"mediaType":"`+docker+`container.image.v1+json","size":%d,"digest":%q},
		"layers":[{"mediaType":"`+docker+`image.rootfs.diff.tar","size":%d,"digest":%q}]}`,
		len(config), digest(config), len(layer), digest(layer))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", docker+"distribution.manifest.v2+json")
			w.Header().Set("Docker-Content-Digest", digest(manifest))
			_, _ = w.Write(manifest)
		case strings.HasSuffix(r.URL.Path, digest(config)):
			_, _ = w.Write(config)
		case strings.HasSuffix(r.URL.Path, digest(layer)):
			w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
			_, _ = w.Write(layer[:len(layer)/2])
			if release != nil {
				_ = http.NewResponseController(w).Flush()
				<-release
			}
			_, _ = w.Write(layer[len(layer)/2:])
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/web:1"
}

// randomLayer holds one file that no engine has seen.
func randomLayer(t *testing.T) []byte {
	t.Helper()
	content := []byte(rand.Text())
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.WriteHeader(&tar.Header{Name: "file", Mode: 0o600, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}
