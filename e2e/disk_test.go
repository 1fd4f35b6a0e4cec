package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
	"github.com/beckon-fleet/beckon/e2e/kit/need"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

// A server whose disk is full refuses what needs writing, in words, and goes on
// answering the rest. When there is room again it goes on by itself, with all
// that it has confirmed and nothing that it has refused.
func TestServerDiskFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	c := fixture(t, programs.Dir(t))
	c.Data = filepath.Join(disk, "data")
	c.Start("")
	kept := map[string]bool{}
	if err := store(c, kept); err != nil {
		t.Fatal(err)
	}

	ballast := fill(t, disk)
	refused := untilRefused(t, c, kept)
	if !errors.Is(refused, api.StorageFull) && !errors.Is(refused, api.Unavailable) {
		t.Errorf("a write on a full disk: %v, want storage_full or unavailable", refused)
	}
	if _, err := cluster.Call(c, api.Healthz, api.HealthRequest{}); err != nil {
		t.Errorf("healthz on a full disk: %v", err)
	}
	wait.For(t, "readyz to see the full disk", func() error { // it looks once a second
		_, err := cluster.Call(c, api.Readyz, api.HealthRequest{})
		if errors.Is(err, api.StorageFull) || errors.Is(err, api.Unavailable) {
			return nil
		}
		return fmt.Errorf("readyz says %v, want storage_full or unavailable", err)
	})
	if got := tokens(c); !maps.Equal(got, kept) {
		t.Errorf("on a full disk there are %d tokens, want the %d that were confirmed", len(got), len(kept))
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the server to go on", func() error { return store(c, kept) })
	wait.For(t, "readyz with room again", func() error {
		_, err := cluster.Call(c, api.Readyz, api.HealthRequest{})
		return err
	})
	if got := tokens(c); !maps.Equal(got, kept) {
		t.Errorf("with room again there are %d tokens, want the %d that were confirmed", len(got), len(kept))
	}
	c.Stop()
	c.Start("")
	if got := tokens(c); !maps.Equal(got, kept) {
		t.Errorf("after a restart there are %d tokens, want the %d that were confirmed", len(got), len(kept))
	}
}

// A server does not start on a full disk, and says so; its data are as they were.
func TestServerStartsOnFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	c := fixture(t, programs.Dir(t))
	c.Data = filepath.Join(disk, "data")
	c.Start("")
	kept := map[string]bool{}
	if err := store(c, kept); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	ballast := fill(t, disk)
	if code, said := c.Fails(); code != 1 || !strings.Contains(said, "no space left") {
		t.Errorf("on a full disk it ended with %d, and said %q", code, said)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.Start("")
	if got := tokens(c); !maps.Equal(got, kept) {
		t.Errorf("there are %d tokens, want the %d that were confirmed", len(got), len(kept))
	}
}

// smallDisk is a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := mount(dir); err != nil {
		need.Missing(t, "this test needs a small disk: run it on Linux as root, with the right to mount: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill leaves no byte free.
func fill(t *testing.T, disk string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return ballast
}

// store has the server store something, and remembers what it confirmed.
func store(c *cluster.Cluster, kept map[string]bool) error {
	token, err := cluster.Call(c, api.CreateJoinToken, api.CreateJoinTokenRequest{})
	if err == nil {
		kept[token.ID] = true
	}
	return err
}

// untilRefused stores until that fails: the database has room within its files.
func untilRefused(t *testing.T, c *cluster.Cluster, kept map[string]bool) error {
	t.Helper()
	for range 10_000 {
		if err := store(c, kept); err != nil {
			return err
		}
	}
	t.Fatal("10,000 writes on a full disk were confirmed")
	return nil
}

func tokens(c *cluster.Cluster) map[string]bool {
	all := map[string]bool{}
	for at := (api.Cursor{Limit: api.MaxPage}); ; {
		page := cluster.Must(c, api.ListJoinTokens, api.ListJoinTokensRequest{Cursor: at})
		for _, token := range page.Items {
			all[token.ID] = true
		}
		if at.After = page.Next; at.After == "" {
			return all
		}
	}
}
