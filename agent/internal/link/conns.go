package link

import (
	"context"
	"errors"
	"net"
	"sync"
)

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// conns are the connections of a transport, which itself ends only those that
// nobody uses: a stream that has just ended may still count as somebody.
type conns struct {
	dial dial

	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

// Dial fits http.Transport.
func (c *conns) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	plain, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	kept := &conn{plain, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(net.ErrClosed, plain.Close())
	}
	c.open[kept] = struct{}{}
	return kept, nil
}

// close ends them all, and those that are being dialled.
func (c *conns) close() {
	c.mu.Lock()
	open := c.open
	c.open, c.closed = nil, true
	c.mu.Unlock()
	for kept := range open {
		kept.Conn.Close()
	}
}

type conn struct {
	net.Conn
	of *conns
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
