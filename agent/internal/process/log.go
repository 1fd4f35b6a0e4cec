package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	logSize  = 1 << 20 // of one file of a log
	logFiles = 3
	maxLine  = 2000 // bytes of a line; the rest of it is left out
	cutMark  = "…"  // the end of a line that was cut
	logName  = "log"
)

// Line is one line that a program wrote. A log is files of lines as JSON, one
// a line: log is the newest, log.1 is before it, and so on.
type Line struct {
	N      int64     `json:"n"` // one more than that of the line before
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Line   string    `json:"line"`   // as text: bytes that are none are replaced
}

// logbook writes the log of an instance. What cannot be written, on a full
// disk for instance, is left out: a program never waits for its log.
type logbook struct {
	dir string

	mu     sync.Mutex
	file   *os.File // nil after a failure
	size   int64
	broken bool // the last line may be half a one
	n      int64
}

func openLog(dir string) *logbook {
	l := &logbook{dir: dir}
	if lines, err := readLines(dir, 1); err == nil && len(lines) > 0 {
		l.n = lines[0].N
	}
	return l
}

func (l *logbook) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// copy writes what a program writes to a stream, until that ends.
func (l *logbook) copy(stream string, from io.Reader) {
	in := bufio.NewReaderSize(from, 64<<10)
	var batch []string
	for {
		line, err := in.ReadSlice('\n')
		whole := err == nil
		if len(line) > 0 {
			batch = append(batch, text(line))
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is far too long
			_, err = in.ReadSlice('\n')
			whole = err == nil
		}
		if in.Buffered() == 0 || len(batch) >= 1000 || !whole {
			l.write(stream, batch)
			batch = batch[:0]
		}
		if !whole {
			return
		}
	}
}

// text makes a line of what a program wrote: of bounded length, and valid.
func text(raw []byte) string {
	raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	long := len(raw) > maxLine
	line := strings.ToValidUTF8(string(raw[:min(len(raw), maxLine+utf8.UTFMax)]), "\uFFFD")
	if !long && len(line) <= maxLine {
		return line
	}
	end := maxLine - len(cutMark)
	if len(line) <= end {
		return line + cutMark
	}
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + cutMark
}

func (l *logbook) write(stream string, lines []string) {
	if len(lines) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UTC()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, line := range lines {
		l.n++
		if err := enc.Encode(Line{l.n, now, stream, line}); err != nil {
			continue // a time or a text that is no JSON: there is none
		}
		if l.size+int64(out.Len()) >= logSize {
			l.flush(&out)
		}
	}
	l.flush(&out)
}

// flush writes to the newest file, and begins another when that is full.
func (l *logbook) flush(out *bytes.Buffer) {
	defer out.Reset()
	if l.file == nil && l.open() != nil {
		return
	}
	data := out.Bytes()
	if l.broken {
		data = append([]byte("\n"), data...)
	}
	n, err := l.file.Write(data)
	l.size += int64(n)
	l.broken = err != nil
	if err != nil || l.size >= logSize {
		_ = l.file.Close() // the next line opens it anew
		l.file = nil
	}
	if l.size >= logSize {
		l.turn()
	}
}

func (l *logbook) open() error {
	file, err := os.OpenFile(filepath.Join(l.dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// turn makes the newest file the second, and drops the oldest.
func (l *logbook) turn() {
	for n := logFiles - 1; n > 0; n-- {
		_ = os.Rename(logFile(l.dir, n-1), logFile(l.dir, n))
	}
	l.size = 0
}

// logFile is a file of a log, 0 the newest.
func logFile(dir string, n int) string {
	if n == 0 {
		return filepath.Join(dir, logName)
	}
	return filepath.Join(dir, logName+"."+strconv.Itoa(n))
}

// Lines are the last that an instance wrote, the oldest first.
func (d *Driver) Lines(id string, most int) ([]Line, error) {
	at, err := d.mustFind(id)
	if err != nil {
		return nil, err
	}
	return readLines(at.path(logDir), most)
}

func readLines(dir string, most int) (lines []Line, err error) {
	for n := 0; n < logFiles && len(lines) < most; n++ {
		content, err := os.ReadFile(logFile(dir, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
		lines = append(parse(content), lines...)
	}
	return lines[max(0, len(lines)-most):], nil
}

// parse leaves out what a full disk or the end of the machine broke off.
func parse(content []byte) (lines []Line) {
	for raw := range bytes.Lines(content) {
		var one Line
		if json.Unmarshal(raw, &one) == nil {
			lines = append(lines, one)
		}
	}
	return lines
}
