package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for _, host := range []string{"nonsense", "ssh://root@example.com", "unix://", "npipe:////./pipe/docker_engine"} {
		if _, err := New(host); err == nil || !strings.Contains(err.Error(), "DOCKER_HOST") {
			t.Errorf("%s: %v", host, err)
		}
	}
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	d, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Version(t.Context()); !errors.Is(err, Absent) || !strings.Contains(err.Error(), "/nowhere/docker.sock") {
		t.Errorf("DOCKER_HOST was not heeded: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	d := &Driver{host: "unix:///x.sock"}
	for cause, want := range map[error]Reason{
		fs.ErrPermission:         Forbidden,
		fs.ErrNotExist:           Absent,
		syscall.ECONNREFUSED:     Absent,
		errors.New("no such ho"): Absent,
	} {
		err := d.unreachable(&net.OpError{Op: "dial", Net: "unix", Err: cause})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "unix:///x.sock") || !strings.Contains(err.Error(), ": ") {
			t.Errorf("%v became %v (%s)", cause, err, err.Reason)
		}
	}
}

// fake is an engine that shows faults which a real one cannot be made to show.
func fake(t *testing.T, handler http.HandlerFunc) *Driver {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	d, err := New("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestEngineThatIsTooOld(t *testing.T) {
	d := fake(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.24") })
	if _, err := d.Version(t.Context()); !errors.Is(err, TooOld) {
		t.Errorf("got %v", err)
	}
}

func TestEngineThatBreaksOff(t *testing.T) {
	d := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			panic(http.ErrAbortHandler)
		}
	})
	if _, err := d.Version(t.Context()); !errors.Is(err, Silent) {
		t.Errorf("got %v", err)
	}
}

// The engine is upgraded while the agent runs, and takes the API version of
// its predecessor no more.
func TestEngineThatWasUpgraded(t *testing.T) {
	var upgraded atomic.Bool
	d := fake(t, func(w http.ResponseWriter, r *http.Request) {
		version := "1.41"
		if upgraded.Load() {
			version = "1.50"
		}
		w.Header().Set("Api-Version", version)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case !strings.HasPrefix(r.URL.Path, "/v"+version+"/"):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"message":"client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade your client to a newer version"}`)
		default:
			fmt.Fprintf(w, `{"Version":"engine of %s"}`, version)
		}
	})
	for _, want := range []string{"engine of 1.41", "engine of 1.50"} {
		if got, err := d.Version(t.Context()); got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		upgraded.Store(true)
	}
}

// A caller whose time is over waits for no other.
func TestEngineThatHangs(t *testing.T) {
	release := make(chan struct{})
	d := fake(t, func(_ http.ResponseWriter, _ *http.Request) { <-release })
	defer close(release)
	long, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := d.Version(long)
		ended <- err
	}()
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.Version(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A registry that falls silent in the middle of a layer is given up.
func TestPullThatStalls(t *testing.T) {
	release := make(chan struct{})
	d := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if strings.HasSuffix(r.URL.Path, "/images/create") {
			fmt.Fprintln(w, `{"status":"Downloading","id":"1"}`)
			_ = http.NewResponseController(w).Flush()
			<-release
		}
	})
	defer close(release)
	d.quiet = 200 * time.Millisecond
	if err := d.Pull(t.Context(), "web:1"); !errors.Is(err, RegistryUnreachable) || !strings.Contains(err.Error(), "has sent nothing for 200ms") {
		t.Errorf("got %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	for _, text := range []string{
		"driver failed programming external connectivity on endpoint x: Bind for 0.0.0.0:80 failed: port is already allocated",
		"driver failed programming external connectivity on endpoint x: Error starting userland proxy: listen tcp4 0.0.0.0:80: bind: address already in use",
		"failed to set up container networking: driver failed programming external connectivity on endpoint x: failed to bind host port 0.0.0.0:80/tcp",
	} {
		d := &Driver{}
		if err := d.explain(t.Context(), errors.New("Error response from daemon: "+text)); !errors.Is(err, PortTaken) || strings.HasPrefix(err.Error(), "Error response") {
			t.Errorf("%s became %v", text, err)
		}
	}
}

func TestSaid(t *testing.T) {
	got := said(errors.New("Error response from daemon: two\n  lines " + strings.Repeat("é", 1000)))
	if !strings.HasPrefix(got, "two lines é") || len(got) > 610 {
		t.Errorf("got %q", got)
	}
}

// What engines of several years said about registries.
func TestRegistryError(t *testing.T) {
	for text, want := range map[string]Reason{
		"manifest for x:nope not found: manifest unknown: manifest unknown": ImageUnknown,
		"manifest unknown": ImageUnknown,
		"failed to resolve reference \"docker.io/library/x:nope\": docker.io/library/x:nope: not found":                                         ImageUnknown,
		"pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied": ImageDenied,
		"Get \"https://r.example/v2/x/manifests/1\": unauthorized: authentication required":                                                     ImageDenied,
		"Get \"https://r.example/v2/x/manifests/1\": no basic auth credentials":                                                                 ImageDenied,
		"toomanyrequests: You have reached your pull rate limit.":                                                                               RegistryBusy,
		"received unexpected HTTP status: 503 Service Unavailable":                                                                              RegistryBusy,
		"Get \"https://r.example/v2/\": dial tcp: lookup r.example on 10.0.0.1:53: no such host":                                                RegistryUnreachable,
		"Get \"https://r.example/v2/\": dial tcp 10.0.0.2:443: connect: connection refused":                                                     RegistryUnreachable,
		"Get \"https://r.example/v2/\": net/http: TLS handshake timeout":                                                                        RegistryUnreachable,
		"Get \"https://r.example/v2/\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)":                             RegistryUnreachable,
		"Get \"https://r.example/v2/\": x509: certificate signed by unknown authority":                                                          RegistryUnreachable,
		"Get \"https://r.example/v2/\": http: server gave HTTP response to HTTPS client":                                                        RegistryUnreachable,
		"unexpected EOF":                       RegistryUnreachable,
		"no matching manifest for linux/s390x": Refused,
	} {
		if err := registryError("x", text); err.Reason != want || !strings.Contains(err.Detail, text) {
			t.Errorf("%s is %s, want %s", text, err.Reason, want)
		}
	}
}
