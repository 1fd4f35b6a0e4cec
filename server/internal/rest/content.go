package rest

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Body is the body of a request that may take long, as long as it moves: each
// read has a deadline of its own. It ends with an error after most bytes.
func Body(w http.ResponseWriter, q *http.Request, most int64) io.Reader {
	return moving{http.MaxBytesReader(w, q.Body, most), http.NewResponseController(w)}
}

type moving struct {
	io.Reader
	control *http.ResponseController
}

func (m moving) Read(p []byte) (int, error) {
	if err := m.control.SetReadDeadline(time.Now().Add(ReadTimeout)); err != nil {
		slog.Debug("read deadline not set", "err", err)
	}
	return m.Reader.Read(p)
}

// Content answers GET and HEAD with size bytes of from, or the part that is
// asked for (RFC 9110 section 14). Several parts at once, which no client of
// ours asks for, and a Range that is malformed are answered with the whole. A
// reader that takes something now and then may take as long as it likes.
func Content(w http.ResponseWriter, q *http.Request, etag string, size int64, from io.ReadSeeker) error {
	h := w.Header()
	h.Set("Cache-Control", "private, no-transform")
	h.Set("ETag", etag)
	h.Set("Accept-Ranges", "bytes")
	if anyMatches(q.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	p := part{0, size, http.StatusOK}
	if condition := q.Header.Get("If-Range"); q.Method == http.MethodGet && (condition == "" || condition == etag) {
		p = partOf(q.Header.Get("Range"), size)
	}
	if p.status == http.StatusRequestedRangeNotSatisfiable {
		h.Del("ETag")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
		return api.Errorf(api.RangeUnsatisfiable, "the file has %d bytes, and the Range begins behind them", size)
	}
	if _, err := from.Seek(p.start, io.SeekStart); err != nil {
		return err
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(p.length, 10))
	if p.status == http.StatusPartialContent {
		h.Set("Content-Range", "bytes "+strconv.FormatInt(p.start, 10)+"-"+strconv.FormatInt(p.start+p.length-1, 10)+"/"+strconv.FormatInt(size, 10))
	}
	w.WriteHeader(p.status)
	if q.Method == http.MethodHead {
		return nil
	}
	if n, err := io.CopyN(taken{w, http.NewResponseController(w)}, from, p.length); err != nil {
		slog.DebugContext(q.Context(), "content not sent to its end", "path", q.URL.Path, "sent", n, "of", p.length, "err", err)
		panic(http.ErrAbortHandler) // the caller must not take it for all there is
	}
	return nil
}

// anyMatches reads an If-None-Match, which may list several tags. A proxy that
// changed the coding has made a tag a weak one, which is as good (RFC 9110
// 13.1.2).
func anyMatches(header, etag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == etag {
			return true
		}
	}
	return false
}

// part is what is answered, and with which status.
type part struct {
	start, length int64
	status        int
}

// partOf reads a Range of one part.
func partOf(header string, size int64) part {
	whole, nothing := part{0, size, http.StatusOK}, part{status: http.StatusRequestedRangeNotSatisfiable}
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash || !digits(first) || !digits(last) {
		return whole
	}
	switch start, end := number(first), number(last); {
	case first == "" && last == "":
		return whole
	case first == "" && (end == 0 || size == 0):
		return nothing
	case first == "": // so many from the end
		n := min(end, size)
		return part{size - n, n, http.StatusPartialContent}
	case last != "" && end < start:
		return whole
	case start >= size:
		return nothing
	case last == "":
		return part{start, size - start, http.StatusPartialContent}
	default:
		return part{start, min(end, size-1) - start + 1, http.StatusPartialContent}
	}
}

func digits(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

// number reads digits; what is larger than any size is the largest.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // out of range is the largest there is
	return n
}

// taken gives each write a deadline of its own.
type taken struct {
	io.Writer
	control *http.ResponseController
}

func (t taken) Write(p []byte) (int, error) {
	if err := t.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		slog.Debug("write deadline not set", "err", err)
	}
	return t.Writer.Write(p)
}
