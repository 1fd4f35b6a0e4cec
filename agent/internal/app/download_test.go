package app_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/app"
	"github.com/beckon-fleet/beckon/api"
)

// parts is a far end that breaks off, and does worse.
type parts struct {
	file  archiveFile
	each  int   // bytes until it breaks off
	fails int   // answers that are errors first
	err   error // these
	opens int
}

func (s *parts) Open(_ context.Context, _ string, offset int64) (io.ReadCloser, error) {
	if s.opens++; s.opens <= s.fails {
		return nil, s.err
	}
	rest := s.file[min(int(offset), len(s.file)):]
	broken := io.MultiReader(bytes.NewReader(rest[:min(len(rest), s.each)]), reset{})
	if len(rest) <= s.each {
		broken = bytes.NewReader(rest)
	}
	return io.NopCloser(broken), nil
}

type reset struct{}

func (reset) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestDownload(t *testing.T) {
	b := bare(t)
	for name, c := range map[string]struct {
		source func(file archiveFile) *parts
		change func(p *api.DeployPayload)
		limit  time.Duration
		words  string // "" when it must succeed
	}{
		"cut": {source: func(f archiveFile) *parts { return &parts{file: f, each: len(f)/3 + 1} }},
		"away for a while": {source: func(f archiveFile) *parts {
			return &parts{file: f, each: 1 << 30, fails: 2, err: errors.New("no route to host")}
		}},
		"more than there should be": {source: func(f archiveFile) *parts { return &parts{file: append(f[:len(f):len(f)], "more"...), each: 1 << 30} }},
		"gone": {source: func(f archiveFile) *parts {
			return &parts{fails: 99, err: api.Errorf(api.NotFound, "there is no such file")}
		}, words: "there is no such file"},
		"away": {source: func(f archiveFile) *parts {
			return &parts{fails: 99, err: errors.New("no route to host")}
		}, words: "no route to host", limit: 4 * time.Second},
		"short":   {source: func(f archiveFile) *parts { return &parts{file: f[:1000], each: 1 << 30} }, words: "it ends after 1000 bytes and should have"},
		"changed": {source: func(f archiveFile) *parts { return &parts{file: append(f[:len(f)-1:len(f)-1], 'x'), each: 1 << 30} }, words: "is not what was deployed"},
		"huge": {
			source: func(f archiveFile) *parts { return &parts{file: f, each: 1 << 30} },
			change: func(p *api.DeployPayload) { p.Archive.SizeBytes = 1 << 60 }, words: "there is room for",
		},
		"no archive": {
			source: func(f archiveFile) *parts { return &parts{file: f, each: 1 << 30} },
			change: func(p *api.DeployPayload) { *p.Archive = *archiveFile("hello").named() }, words: "is not what was deployed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := b.node(t)
			source := c.source(b.archive)
			n.Service = app.New(app.Config{
				Node: n.id, Docker: b.engine, Process: n.programs(), Source: source, Trace: filepath.Join(n.dir, "containers"),
			})
			p := n.next("wait", "1h")
			if c.change != nil {
				c.change(&p)
			}
			if c.limit > 0 {
				ctx, cancel := context.WithTimeout(n.ctx, c.limit)
				defer cancel()
				n.ctx = ctx
			}
			if c.words == "" {
				n.deploy(p)
				n.only(p)
			} else {
				n.refuse(p, "revision 1 of web failed", c.words)
			}
			left, err := filepath.Glob(filepath.Join(n.dir, ".*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left are %q, %v", left, err)
			}
		})
	}
}

func TestUnsafeArchive(t *testing.T) {
	b := bare(t)
	for name, file := range map[string]archiveFile{
		"(..)":          pack(t, map[string]string{"../out": "x"}),
		"neither a tar": archiveFile(strings.Repeat("hello", 300)),
	} {
		b.archive = file
		n := b.alone(t)
		n.refuse(n.next("wait", "1h"), "unpack archive file_1", name)
		if got := n.made(); len(got) != 0 {
			t.Errorf("%q are left", got)
		}
	}
}
