package state_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
)

const (
	older = "identity-000001.json"
	newer = "identity-000002.json"
	aside = ".corrupt-1796040000" // noon
)

// damages are what becomes of a file when power is lost, disks are bad, or
// people help (field case).
var damages = map[string]func(path string) error{
	"empty":   func(path string) error { return os.Truncate(path, 0) },
	"half":    func(path string) error { return change(path, func(b []byte) []byte { return b[:len(b)/2] }) },
	"NULs":    func(path string) error { return change(path, func(b []byte) []byte { return make([]byte, len(b)) }) },
	"no JSON": func(path string) error { return change(path, func([]byte) []byte { return []byte("identity\n") }) },
	"null":    func(path string) error { return change(path, func([]byte) []byte { return []byte("null") }) },
	"{}":      func(path string) error { return change(path, func([]byte) []byte { return []byte("{}") }) },
	"a folder": func(path string) error {
		return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "not", "empty"), 0o700))
	},
	"a link": func(path string) error {
		return errors.Join(os.Rename(path, path+".elsewhere"), os.Symlink(path+".elsewhere", path))
	},
}

func change(path string, do func([]byte) []byte) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, do(data), 0o600)
}

func TestDamagedGenerationFallsBackToTheOlder(t *testing.T) {
	a := newAuthority(t)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			first, second := a.identity("node_1"), a.identity("node_1")
			p.must(p.Keep(first))
			p.must(p.Keep(second))
			p.is(second)
			p.must(damage(p.Path(newer)))
			p.reopen()
			p.is(first)
			if _, err := os.Lstat(p.Path(newer + aside)); err != nil || !strings.Contains(p.log.String(), newer+aside) {
				t.Errorf("it was not put aside, or silently: %v\n%s", err, p.log)
			}
			p.is(first) // and again
			third := a.identity("node_1")
			p.must(p.Keep(third))
			p.is(third)
		})
	}
}

// A node that was somebody does not become somebody else by itself.
func TestNoGoodGenerationIsNoNewNode(t *testing.T) {
	a := newAuthority(t)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			p.must(p.Keep(a.identity("node_1")))
			p.must(p.Keep(a.identity("node_1")))
			good, err := os.ReadFile(p.Path(older))
			p.must(err)
			p.must(damage(p.Path(older)))
			p.must(damage(p.Path(newer)))
			for range 2 {
				p.reopen()
				id, err := p.Identity()
				if id != nil || !errors.Is(err, state.ErrDamaged) {
					t.Fatalf("got %+v, %v", id, err)
				}
				for _, want := range []string{p.Path(newer + aside), "put a good copy back under its own name", "beckon-agent join"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in: %v", want, err)
					}
				}
			}
			p.must(os.WriteFile(p.Path(older), good, 0o600)) // as the sentence says
			if id, err := p.Identity(); err != nil || id == nil || id.NodeID != "node_1" {
				t.Errorf("with a good copy: %+v, %v", id, err)
			}
		})
	}
}

func TestNeverJoinedIsNoError(t *testing.T) {
	p := open(t)
	p.must(os.WriteFile(p.Path("identity-000001.json.bak"), nil, 0o600))
	p.must(os.WriteFile(p.Path("journal.db.corrupt-1"), nil, 0o600))
	for name, folder := range map[string]*state.Folder{"agent": p.Folder, "reader": p.look()} {
		if id, err := folder.Identity(); id != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	if revoked, err := p.Revoked(); revoked != nil || err != nil {
		t.Errorf("%+v, %v", revoked, err)
	}
}

// What people and editors leave beside a file is no generation of it.
func TestCopiesBesideAreNoGenerations(t *testing.T) {
	p, a := open(t), newAuthority(t)
	first, second := a.identity("node_1"), a.identity("node_1")
	p.must(p.Keep(first))
	data, err := os.ReadFile(p.Path(older))
	p.must(err)
	copies := []string{"identity-000009.json.bak", "identity-000009.json~", "identity-copy.json", "identity-.json", "identity-000001 (1).json", "identity-0.json", "identity--5.json"}
	for _, name := range copies {
		p.must(os.WriteFile(p.Path(name), data, 0o600))
	}
	p.must(p.Keep(second))
	p.is(second)
	p.must(p.Settle())
	p.is(second)
	p.holds(append(copies, newer)...)
}

func TestGenerationsAreSettledOnceTheNewestHasWorked(t *testing.T) {
	p, a := open(t), newAuthority(t)
	p.must(p.Settle())
	p.holds()
	ids := []*state.Identity{a.identity("node_1"), a.identity("node_1"), a.identity("node_1")}
	for i, id := range ids {
		p.must(p.Keep(id))
		p.is(id)
		if len(p.names()) != i+1 {
			t.Errorf("an older one went too early: %v", p.names())
		}
	}
	p.must(p.Settle())
	p.holds("identity-000003.json")
	p.is(ids[2])
	p.must(p.Settle())
	p.must(p.Keep(ids[0]))
	p.holds("identity-000003.json", "identity-000004.json")
	p.is(ids[0])
	for _, name := range []string{"identity-1000000.json", "identity-999999.json"} {
		p.must(os.Rename(p.Path(p.names()[0]), p.Path(name)))
	}
	if id, err := p.Identity(); err != nil || id.Certificate != ids[2].Certificate {
		t.Errorf("a million comes after all others: %v", err)
	}
}

func TestFilesAreOursAlone(t *testing.T) {
	p, a := open(t), newAuthority(t)
	id := a.identity("node_1")
	p.must(p.Keep(id))
	_, err := p.JoinKey("bkn_join_a")
	p.must(err)
	p.must(p.Revoke("node_1"))
	for _, name := range []string{older, "joining.json", "revoked.json"} {
		p.mode(name, 0o600)
		p.must(os.Chmod(p.Path(name), 0o644))
	}
	if info, err := os.Stat(p.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if _, err := p.look().Identity(); err != nil {
		t.Error(err)
	}
	p.mode(older, 0o644) // a reader changes nothing
	p.is(id)
	_, err = p.JoinKey("bkn_join_a")
	p.must(err)
	_, err = p.Revoked()
	p.must(err)
	for _, name := range []string{older, "joining.json", "revoked.json"} {
		p.mode(name, 0o600)
	}
	if n := strings.Count(p.log.String(), "tightened"); n != 3 {
		t.Errorf("it was said %d times:\n%s", n, p.log)
	}
}

func (p *place) mode(name string, want os.FileMode) {
	p.t.Helper()
	if info, err := os.Stat(p.Path(name)); err != nil || info.Mode().Perm() != want {
		p.t.Errorf("%s: %v, %v", name, info, err)
	}
}

// Another user's file is not believed; a reader, who only shows, may be another
// user than the agent.
func TestOtherOwner(t *testing.T) {
	p, a := open(t), newAuthority(t)
	first := a.identity("node_1")
	p.must(p.Keep(first))
	p.must(p.Keep(a.identity("node_2")))
	if os.Geteuid() != 0 {
		skip := t.Skip
		if os.Getenv("BECKON_CI") == "1" {
			skip = t.Fatal
		}
		skip("to give a file away needs root: run the tests with sudo")
	}
	p.must(os.Chown(p.Path(newer), 12345, 12345))
	if id, err := p.look().Identity(); err != nil || id == nil || id.NodeID != "node_2" {
		t.Errorf("a reader sees %+v, %v", id, err)
	}
	p.is(first)
	p.holds(older, newer+aside)
	if !strings.Contains(p.log.String(), "belongs to user 12345 and this agent runs as 0") {
		t.Error(p.log)
	}
}

func TestLookChangesNothing(t *testing.T) {
	a := newAuthority(t)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			first := a.identity("node_1")
			p.must(p.Keep(first))
			p.must(p.Keep(a.identity("node_1")))
			p.must(os.WriteFile(p.Path(".tmp-1"), nil, 0o600))
			p.must(damage(p.Path(newer)))
			before := fmt.Sprint(p.names())
			if id, err := p.look().Identity(); err != nil || id == nil || id.Certificate != first.Certificate {
				t.Errorf("beside a good one: %+v, %v", id, err)
			}
			p.must(damage(p.Path(older)))
			_, err := p.look().Identity()
			if !errors.Is(err, state.ErrDamaged) || !strings.Contains(err.Error(), p.Path(newer)) {
				t.Errorf("nothing is good, and it says %v", err)
			}
			before = strings.ReplaceAll(before, ".elsewhere", "")
			if after := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(p.names()), older+".elsewhere ", ""), ".elsewhere", ""); after != before {
				t.Errorf("%s became %s", before, after)
			}
		})
	}
	missing := state.Look(filepath.Join(t.TempDir(), "none"), clock, nil)
	if _, err := missing.Identity(); err == nil {
		t.Error("there is no folder, and no error")
	}
}

func TestSweepTakesWhatDiedHalfWritten(t *testing.T) {
	p, a := open(t), newAuthority(t)
	id := a.identity("node_1")
	p.must(p.Keep(id))
	for _, name := range []string{".tmp-1", ".tmp-22"} {
		p.must(os.WriteFile(p.Path(name), []byte(`{"node_id": "node_9"`), 0o600))
	}
	p.reopen()
	p.is(id)
	p.must(p.Sweep())
	p.holds(older)
	p.is(id)
}

// A token must not be spent for what could not be kept.
func TestUnwritableFolder(t *testing.T) {
	dir := durabletest.SmallDisk(t, 64<<10)
	p := &place{t: t, dir: dir}
	p.reopen()
	a := newAuthority(t)
	id := a.identity("node_1")
	p.must(p.Keep(id))
	filler, err := os.Create(p.Path("filler"))
	p.must(err)
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	p.must(filler.Close())
	if _, err := state.Open(dir, clock, nil); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("on a full disk: %v", err)
	}
	for name, do := range map[string]func() error{
		"keep":     func() error { return p.Keep(a.identity("node_1")) },
		"join key": func() error { _, err := p.JoinKey("bkn_join_a"); return err },
		"revoke":   func() error { return p.Revoke("node_1") },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	p.holds(older, "filler")
	p.is(id)
	p.must(os.Remove(p.Path("filler")))
	durabletest.ReadOnly(t, dir)
	if _, err := state.Open(dir, clock, nil); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("on a read-only disk: %v", err)
	}
	if got, err := state.Look(dir, clock, nil).Identity(); err != nil || got.Certificate != id.Certificate {
		t.Errorf("a reader needs no more: %v", err)
	}
}

// What openssl reads is what the agent wrote.
func TestKeyIsAsOpenSSLReadsIt(t *testing.T) {
	key, csr := newAuthority(t).newKey()
	for args, text := range map[string]string{"pkey -noout -check": key.PEM, "req -noout -verify": csr} {
		cmd := exec.CommandContext(t.Context(), "openssl", strings.Fields(args)...)
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) && os.Getenv("BECKON_CI") != "1" {
			t.Skip("install openssl")
		}
		if err != nil {
			t.Errorf("openssl %s: %v: %s", args, err, out)
		}
	}
}

// A process that was shut out may leave its mark after the machine has joined
// anew: that identity is good.
func TestMarkEndsItsOwnIdentityOnly(t *testing.T) {
	for _, c := range []struct {
		mark *state.Revoked
		id   *state.Identity
		want bool
	}{
		{nil, &state.Identity{NodeID: "node_1"}, false},
		{&state.Revoked{NodeID: "node_1"}, &state.Identity{NodeID: "node_1"}, true},
		{&state.Revoked{NodeID: "node_1"}, &state.Identity{NodeID: "node_2"}, false},
		{&state.Revoked{NodeID: "node_1"}, nil, true},
		{&state.Revoked{}, &state.Identity{NodeID: "node_2"}, true}, // a damaged mark still is one
	} {
		if got := c.mark.Ends(c.id); got != c.want {
			t.Errorf("%+v of %+v: %v", c.mark, c.id, got)
		}
	}
}
