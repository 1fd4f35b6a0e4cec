package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is a folder with what a cgroup v2 tree has at its top.
func tree(t *testing.T, controllers string) string {
	t.Helper()
	top := t.TempDir()
	for _, dir := range []string{top, filepath.Join(top, ourGroup)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return top
}

func TestLimitFiles(t *testing.T) {
	top := tree(t, "cpuset cpu io memory pids\n")
	l, notes := limitIn(top, "dep_1", Limits{CPUCores: 0.5, MemBytes: 32 << 20})
	if len(notes) != 0 {
		t.Errorf("the notes are %q", notes)
	}
	for file, want := range map[string]string{
		"beckon/dep_1/memory.max": "33554432", "beckon/dep_1/cpu.max": "50000 100000",
		"cgroup.subtree_control": "+cpu", "beckon/cgroup.subtree_control": "+cpu", // written last; here it stays what was written
	} {
		got, err := os.ReadFile(filepath.Join(top, file))
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s holds %q, %v; want %q", file, got, err, want)
		}
	}
	events := filepath.Join(l.path, "memory.events")
	for _, c := range []struct {
		text string
		want bool
	}{{"low 0\noom 1\noom_kill 0\n", false}, {"oom_kill 1\n", true}, {"oom_kill 1\n", false}, {"oom_kill 3\n", true}} {
		if err := os.WriteFile(events, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := l.killed(); got != c.want {
			t.Errorf("%q: %t", c.text, got)
		}
	}
}

func TestLimitsThatCannotBe(t *testing.T) {
	limits := Limits{CPUCores: 1, MemBytes: 32 << 20}
	for name, c := range map[string]struct {
		top   string
		notes []string
	}{
		"no cgroup v2":   {"", []string{"its memory limit is not enforced: this machine has no cgroup v2", "its cpu limit is not enforced: this machine has no cgroup v2"}},
		"no controllers": {tree(t, "hugetlb"), []string{"its memory limit is not enforced: cgroup v2 has no controller memory here", "its cpu limit is not enforced: cgroup v2 has no controller cpu here"}},
		"one of them":    {tree(t, "memory"), []string{"its cpu limit is not enforced: cgroup v2 has no controller cpu here"}},
	} {
		if _, notes := limitIn(c.top, "dep_1", limits); !slices.Equal(notes, c.notes) {
			t.Errorf("%s: %q", name, notes)
		}
	}
	if l, notes := limitIn("", "dep_1", Limits{}); len(notes) != 0 || l.killed() || l.close() != nil {
		t.Errorf("without limits: %q", notes)
	}
}

func TestUnified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	text := "25 30 0:23 / /proc rw - proc proc rw\n35 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"42 32 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := unified(path); got != "/sys/fs/cgroup/unified" {
		t.Errorf("found %q", got)
	}
	if got := unified(path + "x"); got != "" {
		t.Errorf("found %q where there is nothing", got)
	}
}
