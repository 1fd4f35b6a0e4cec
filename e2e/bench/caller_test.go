package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// A caller makes the same call again and again on one connection, and looks at
// no more of the answer than whether it is a yes. Go's own client costs as much
// as a server that does nothing, and could not keep one busy from as many CPUs.
type caller interface {
	call() error
	close() error
}

// dial makes a caller that POSTs body to path.
func (n node) dial(agents string, http2 bool, path string, body []byte) (caller, error) {
	w := n.connect(agents, http2)
	config := w.transport.TLSClientConfig
	config.NextProtos = []string{"http/1.1"}
	if http2 {
		config.NextProtos = []string{"h2"}
	}
	address := strings.TrimPrefix(agents, "https://")
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return nil, err
	}
	c := socket{conn, bufio.NewReader(conn)}
	header := w.client.Header
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if !http2 {
		text := bytes.NewBufferString("POST " + path + " HTTP/1.1\r\nHost: " + address + "\r\n")
		header.Write(text)
		return &caller1{c, append(append(text.Bytes(), "\r\n"...), body...)}, nil
	}
	first, again := headerBlocks(address, path, header)
	if _, err := conn.Write(preface()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &caller2{socket: c, block: first, again: again, body: body, stream: 1}, nil
}

type socket struct {
	conn *tls.Conn
	in   *bufio.Reader
}

func (s socket) close() error { return s.conn.Close() }

// caller1 speaks HTTP/1.1.
type caller1 struct {
	socket
	request []byte
}

func (c *caller1) call() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 20")) {
		return fmt.Errorf("answered with %s", bytes.TrimSpace(status))
	}
	length := 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	_, err = c.in.Discard(length)
	return err
}

// Frames of HTTP/2 (RFC 9113 section 6).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameWindow = 0, 1, 3, 4, 6, 7, 8

	endStream, endHeaders, ack = 1, 4, 1
)

// caller2 speaks HTTP/2.
type caller2 struct {
	socket
	block  []byte // the headers of the next call
	again  []byte // of those after the first: all of it is in the table by then
	body   []byte
	stream uint32
	out    []byte
}

func (c *caller2) call() error {
	c.out = frame(c.out[:0], frameHeaders, endHeaders, c.stream, c.block)
	c.out = frame(c.out, frameData, endStream, c.stream, c.body)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	for {
		kind, flags, payload, err := c.read()
		if err != nil {
			return err
		}
		switch kind {
		case frameSettings, framePing:
			if flags&ack != 0 {
				continue
			}
			if kind == frameSettings {
				payload = nil
			}
			if _, err := c.conn.Write(frame(nil, kind, ack, 0, payload)); err != nil {
				return err
			}
		case frameReset, frameGoAway:
			return errors.New("the server ended the call")
		case frameHeaders:
			if payload[0] != 0x88 && payload[0] != 0x89 { // 200 and 204 in the table that all have
				return errors.New("answered with another status than 200 or 204")
			}
		}
		if (kind == frameHeaders || kind == frameData) && flags&endStream != 0 {
			c.stream += 2
			c.block = c.again
			return nil
		}
	}
}

func (c *caller2) read() (kind, flags byte, payload []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, 0, nil, err
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(c.in, payload)
	return head[3], head[4], payload, err
}

func frame(to []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	to = append(to, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(to, stream), payload...)
}

// preface begins a connection, with room for all answers there will be.
func preface() []byte {
	start := frame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)
	return frame(start, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<30))
}

// headerBlocks are the headers of a first call, which puts them into the
// connection's table, and those of the calls after it, which point into that
// (RFC 7541 section 6).
func headerBlocks(authority, path string, header http.Header) (first, again []byte) {
	const post, https = 0x83, 0x87
	const nameOfPath, nameOfAuthority, newName = 0x44, 0x41, 0x40
	first, again = []byte{post, https}, []byte{post, https}
	first = text(append(first, nameOfPath), path)
	first = text(append(first, nameOfAuthority), authority)
	for name := range header {
		first = text(text(append(first, newName), strings.ToLower(name)), header.Get(name))
	}
	const newest = 0x80 | 62
	for i := len(header) + 1; i >= 0; i-- { // the oldest first: path and authority lead
		again = append(again, byte(newest+i))
	}
	return first, again
}

// text is at most 126 bytes long here.
func text(to []byte, s string) []byte { return append(append(to, byte(len(s))), s...) }
