// Package file downloads what the control plane keeps, from any byte on
// (PROTOCOL.md section 12).
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/api"
)

// Source is the files of the control plane. It proves nothing of what it
// reads: the digest of a signed command does.
type Source struct {
	link *link.Link

	mu   sync.Mutex
	tags map[string]string // ETags of the files that are being read, by id
}

// New is the files at the far end of a link.
func New(l *link.Link) *Source { return &Source{link: l, tags: map[string]string{}} }

// Open reads a file from a byte on. It goes on only with what it began with at
// byte 0: when that has become another file, the error is an api.NotFound. What
// breaks off, is silent for a minute or does not come from our server is an
// error that another try may mend.
func (s *Source) Open(ctx context.Context, id string, offset int64) (io.ReadCloser, error) {
	header, begun := http.Header{}, s.tag(id)
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		if begun != "" {
			header.Set("If-Range", begun)
		}
	}
	answer, err := s.link.Get(ctx, strings.Replace(api.GetFile.Path, "{id}", url.PathEscape(id), 1), header)
	if err != nil {
		return nil, err
	}
	r := &reader{ReadCloser: answer.Body}
	if r.skip, err = s.check(answer, id, offset, begun); err != nil {
		return nil, errors.Join(err, answer.Body.Close())
	}
	return r, nil
}

// check says how many bytes of the answer lie before offset.
func (s *Source) check(answer *http.Response, id string, offset int64, begun string) (skip int64, err error) {
	tag := answer.Header.Get("ETag")
	if !strings.HasPrefix(tag, `"sha256:`) {
		return 0, fmt.Errorf("the file came without the ETag that each has (%q): a proxy may have answered", tag)
	}
	if offset > 0 && begun != "" && tag != begun {
		return 0, api.Errorf(api.NotFound, "file %s became another one while it was being downloaded: deploy again", id)
	}
	start, err := startOf(answer)
	switch {
	case err != nil:
		return 0, err
	case start > offset:
		return 0, fmt.Errorf("the file came from byte %d on, and not from %d", start, offset)
	}
	s.begin(id, tag)
	return offset - start, nil
}

// startOf is the first byte of the answer.
func startOf(answer *http.Response) (int64, error) {
	if answer.StatusCode == http.StatusOK {
		return 0, nil
	}
	said := answer.Header.Get("Content-Range")
	spec, ok := strings.CutPrefix(said, "bytes ")
	first, _, dash := strings.Cut(spec, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	if !ok || !dash || err != nil || start < 0 {
		return 0, fmt.Errorf("a part of the file came and does not say which (%q)", said)
	}
	return start, nil
}

func (s *Source) tag(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags[id]
}

func (s *Source) begin(id, tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags[id] = tag
}

// reader leaves out what the caller has.
type reader struct {
	io.ReadCloser
	skip int64
}

// Read skips first; what is skipped counts as nothing read.
func (r *reader) Read(p []byte) (int, error) {
	for r.skip > 0 {
		n, err := r.ReadCloser.Read(p[:min(int64(len(p)), r.skip)])
		r.skip -= int64(n)
		if err != nil {
			return 0, err
		}
		if len(p) == 0 {
			return 0, nil
		}
	}
	return r.ReadCloser.Read(p)
}
