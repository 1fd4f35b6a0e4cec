// Package state is the agent's folder: who it is, and nothing it could make
// anew by itself. Every file is whole or quarantined; none is ever replaced by
// a default.
package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/beckon-fleet/beckon/internal/durable"
)

const (
	identityPrefix = "identity-"
	joiningFile    = "joining.json"
	revokedFile    = "revoked.json"
)

// ErrDamaged says that there was an identity and none of its files is good any
// more. The agent must not join anew by itself: the node is still somebody.
var ErrDamaged = errors.New("the identity of this node is damaged")

// Folder is the agent's state folder.
type Folder struct {
	path   string
	clock  func() time.Time
	log    *slog.Logger
	reader bool
}

// Open makes the folder, 0700, and proves that it can be written: before a
// token is spent for what could then not be kept.
func Open(path string, clock func() time.Time, log *slog.Logger) (*Folder, error) {
	if err := durable.Dir(path); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	return &Folder{path: path, clock: clock, log: log}, nil
}

// Look is Open for a reader beside a running agent: it changes nothing.
func Look(path string, clock func() time.Time, log *slog.Logger) *Folder {
	return &Folder{path: path, clock: clock, log: log, reader: true}
}

// Sweep removes what an earlier process left half-written. Call it once no
// other process can be writing.
func (f *Folder) Sweep() error {
	if err := durable.Sweep(f.path); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}

// Path is where name is, or would be.
func (f *Folder) Path(name string) string { return filepath.Join(f.path, name) }

// Identity returns the newest good generation, nil where the node never
// joined. Damaged ones are put aside; when none is left, the error is
// ErrDamaged.
func (f *Folder) Identity() (*Identity, error) {
	names, err := f.generations()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(names) {
		id, err := f.read(name)
		if err == nil {
			return id, nil
		}
		if err := f.quarantine(name, err); err != nil {
			return nil, err
		}
	}
	damaged, err := f.list(func(name string) bool {
		original, _, aside := strings.Cut(name, ".corrupt-")
		return generation(original) > 0 && (aside || f.reader) // a reader has put nothing aside
	})
	if err != nil || len(damaged) == 0 {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s; put a good copy back under its own name, or join again with "+
		"`beckon-agent join` and a new token (made with --replaces and this node's name)", ErrDamaged, f.Path(damaged[len(damaged)-1]))
}

// generations lists the names of identity files, oldest first.
func (f *Folder) generations() (names []string, err error) {
	names, err = f.list(func(name string) bool { return generation(name) > 0 })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(generation(a), generation(b)) })
	return names, err
}

// generation is the number in an identity file's name; 0 for any other file, a
// copy that somebody made beside it included.
func generation(name string) int {
	text, ours := strings.CutPrefix(name, identityPrefix)
	text, whole := strings.CutSuffix(text, ".json")
	n, err := strconv.Atoi(text)
	if !ours || !whole || err != nil {
		return 0
	}
	return max(n, 0)
}

func (f *Folder) list(wanted func(name string) bool) (names []string, err error) {
	entries, err := os.ReadDir(f.path) // sorted
	if err != nil {
		return nil, fmt.Errorf("read state folder: %w", err)
	}
	for _, e := range entries {
		if wanted(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (f *Folder) read(name string) (*Identity, error) {
	id := new(Identity)
	if err := f.load(name, id); err != nil {
		return nil, err
	}
	return id, id.check()
}

// load reads a file that must be ours alone. One that others may read is
// tightened; another user's is refused, but shown to a reader.
func (f *Folder) load(name string, into any) error {
	path := f.Path(name)
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a plain file", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() && !f.reader {
		return fmt.Errorf("%s belongs to user %d and this agent runs as %d", path, stat.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 != 0 && !f.reader {
		f.log.Warn("file was open to others; tightened to 0600", "path", path, "mode", info.Mode().Perm().String())
		if err := os.Chmod(path, 0o600); err != nil {
			return fmt.Errorf("tighten %s: %w", path, err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func (f *Folder) quarantine(name string, cause error) error {
	if f.reader {
		f.log.Error("damaged file", "path", f.Path(name), "err", cause)
		return nil
	}
	moved, err := durable.Quarantine(f.Path(name), f.clock())
	if err != nil {
		return fmt.Errorf("put damaged %s aside: %w", f.Path(name), err)
	}
	f.log.Error("damaged file put aside", "path", f.Path(name), "as", moved, "err", cause)
	return nil
}

// Keep writes a new generation. The older ones stay until Settle.
func (f *Folder) Keep(id *Identity) error {
	names, err := f.generations()
	if err != nil {
		return err
	}
	next := 1
	if len(names) > 0 {
		next += generation(names[len(names)-1])
	}
	return f.write(fmt.Sprintf("%s%06d.json", identityPrefix, next), id)
}

// Settle removes the older generations, once the newest has worked.
func (f *Folder) Settle() error {
	names, err := f.generations()
	if err != nil {
		return err
	}
	for _, name := range names[:max(len(names)-1, 0)] {
		if err := os.Remove(f.Path(name)); err != nil {
			return fmt.Errorf("remove old identity: %w", err)
		}
	}
	return nil
}

func (f *Folder) write(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := durable.Write(f.Path(name), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", f.Path(name), err)
	}
	return nil
}

// Revoked marks a node that was shut out.
type Revoked struct {
	NodeID string    `json:"node_id"`
	At     time.Time `json:"at"`
}

// Ends reports whether the mark is of this identity. A process that was shut
// out may leave its mark after another join of the machine: that one is good.
func (r *Revoked) Ends(id *Identity) bool {
	return r != nil && (id == nil || r.NodeID == "" || r.NodeID == id.NodeID)
}

// Revoke keeps that the node was shut out, so that a restart does not ask
// again; and its name, for a later join of this machine.
func (f *Folder) Revoke(node string) error {
	return f.write(revokedFile, Revoked{node, f.clock().UTC()})
}

// Revoked returns the mark, or nil. A damaged one still is one.
func (f *Folder) Revoked() (*Revoked, error) {
	r := new(Revoked)
	err := f.load(revokedFile, r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		f.log.Warn("the revoked mark cannot be read", "path", f.Path(revokedFile), "err", err)
	}
	return r, nil
}

// Forget takes away what belonged to a node that was shut out, what was put
// aside included, but for the journal, whose epoch is the machine's.
func (f *Folder) Forget() error {
	names, err := f.list(func(name string) bool {
		original, _, _ := strings.Cut(name, ".corrupt-")
		return generation(original) > 0
	})
	if err != nil {
		return err
	}
	for _, name := range append(names, revokedFile, joiningFile) {
		if err := os.RemoveAll(f.Path(name)); err != nil {
			return fmt.Errorf("forget old identity: %w", err)
		}
	}
	return nil
}
