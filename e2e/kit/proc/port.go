package proc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports gives out addresses of 127.0.0.1 that nobody listens on, each once.
// They lie below those that the system gives to outgoing connections, so that
// a server finds its own again after a restart.
type Ports struct {
	mu    sync.Mutex
	given map[int]bool
}

// Free is such an address.
func (p *Ports) Free(t testing.TB) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = map[int]bool{}
	}
	for range 1000 {
		port := 20000 + rand.N(12000)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listener, err := net.Listen("tcp", address)
		if err != nil || p.given[port] {
			continue
		}
		listener.Close()
		p.given[port] = true
		return address
	}
	t.Fatal("no port of 127.0.0.1 is free")
	return ""
}
