package hostile

import (
	"context"
	"net"
	"sync"
)

// Darkness is a network whose connections can go dark: nothing comes through
// any more, and nobody is told.
type Darkness struct {
	Way func(ctx context.Context, network, address string) (net.Conn, error) // to the server

	mu  sync.Mutex
	all []*darkConn
}

type darkConn struct {
	net.Conn
	dark chan struct{} // closed when it is
	done chan struct{}
	once sync.Once
}

// Dial fits agent.Config.
func (d *Darkness) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Way(ctx, network, address)
	if err != nil {
		return nil, err
	}
	dark := &darkConn{Conn: c, dark: make(chan struct{}), done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, dark)
	return dark, nil
}

// Fall darkens every connection there is; new ones are not touched.
func (d *Darkness) Fall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.all {
		close(c.dark)
	}
	d.all = nil
}

func (c *darkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.dark:
		<-c.done
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *darkConn) Write(p []byte) (int, error) {
	select {
	case <-c.dark:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *darkConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
