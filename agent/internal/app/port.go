package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
)

// Ports that an agent picks lie below those which systems give to outgoing
// connections, so that nobody sits on one while its instance restarts.
const (
	firstPort = 20000
	pickPorts = 10000
)

// pickPort finds a port of 127.0.0.1 that is free now and that no instance of
// this node counts on, stopped ones included.
func (d *deployment) pickPort(ctx context.Context) (publish string, err error) {
	all, err := d.instances(ctx, "", d.p.RuntimeName())
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	for _, i := range all {
		used[i.publish] = true
	}
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.N(pickPorts)))
		if used[addr] {
			continue
		}
		probe, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		return addr, probe.Close()
	}
	return "", fmt.Errorf("no free port was found on 127.0.0.1 in %d to %d: free some, or set publish", firstPort, firstPort+pickPorts-1)
}

// clash reports whether two ADDR:PORT cannot be listened on at once.
func clash(a, b string) bool {
	one, err := netip.ParseAddrPort(a)
	other, otherErr := netip.ParseAddrPort(b)
	if err != nil || otherErr != nil || one.Port() != other.Port() {
		return false
	}
	return one.Addr() == other.Addr() || one.Addr().IsUnspecified() || other.Addr().IsUnspecified()
}
