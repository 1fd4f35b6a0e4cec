package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/beckon-fleet/beckon/server/internal/store"
)

// loopDir makes the test binary a server that commits until it is killed.
const loopDir = "BECKON_TEST_COMMIT_LOOP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(loopDir); dir != "" {
		fmt.Fprintln(os.Stderr, commitLoop(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// commitLoop prints each number once its row is acknowledged.
func commitLoop(dir string) error {
	if _, err := store.Lock(dir); err != nil {
		return err
	}
	golden, err := os.ReadFile(filepath.Join(dir, "golden"))
	if err != nil {
		return err
	}
	s, err := store.OpenFiles(context.Background(), "sqlite:"+filepath.Join(dir, "state.db"), fstest.MapFS{
		"sql/0001_init.sql": {Data: []byte(first["0001_init.sql"])}, "sql.golden": {Data: golden},
	})
	if err != nil {
		return err
	}
	errs := make(chan error)
	for caller := range 8 {
		go func() {
			for n := caller; ; n += 8 {
				err := s.Update(context.Background(), func(tx *store.Tx) error {
					_, err := tx.Exec(`INSERT INTO t (a, b) VALUES ($1, $2)`, n, strings.Repeat("x", n%2000))
					return err
				})
				if err != nil {
					errs <- err
					return
				}
				fmt.Println(n)
			}
		}()
	}
	return <-errs
}

func TestKilledServerLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	url := "sqlite:" + filepath.Join(dir, "state.db")
	made := files(t, url, first).(fstest.MapFS)
	if err := os.WriteFile(filepath.Join(dir, "golden"), made["sql.golden"].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	acknowledged := killAfter(t, dir, 500)
	release, err := store.Lock(dir)
	if err != nil {
		t.Fatalf("the lock outlived its process: %v", err)
	}
	defer release()
	s, err := store.OpenFiles(t.Context(), url, made)
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	for _, n := range acknowledged {
		if number(t, s, `SELECT COUNT(*) FROM t WHERE a = $1`, n) != 1 {
			t.Errorf("row %d was acknowledged and is gone", n)
		}
	}
	var verdict string
	err = s.View(t.Context(), func(tx *store.Tx) error { return tx.QueryRow(`PRAGMA integrity_check`).Scan(&verdict) })
	if err != nil || verdict != "ok" {
		t.Errorf("integrity: %s, %v", verdict, err)
	}
}

// killAfter runs a commit loop, kills it after so many rows, and returns all
// that it acknowledged.
func killAfter(t *testing.T, dir string, rows int) (acknowledged []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), loopDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { cmd.Process.Kill() })
	defer cmd.Wait()
	defer kill()
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF { // what follows the last line break was cut by the kill
			return acknowledged
		}
		n, convErr := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || convErr != nil {
			t.Fatalf("%q: %v, %v", line, err, convErr)
		}
		if acknowledged = append(acknowledged, n); len(acknowledged) == rows {
			if _, err := store.Lock(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", cmd.Process.Pid)) {
				t.Errorf("want an error that names the process, got %v", err)
			}
			kill()
		}
	}
}

func TestLockIsForOne(t *testing.T) {
	dir := t.TempDir()
	release, err := store.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Lock(dir); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), dir) {
		t.Errorf("want an error that names process and folder, got %v", err)
	}
	release()
	if release, err = store.Lock(dir); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := store.Lock(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there was locked")
	}
}
