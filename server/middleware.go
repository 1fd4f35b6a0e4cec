package server

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/rest"
)

// frame is what every answer has, errors and 304 included, and where a panic
// becomes a problem (PROTOCOL.md section 1).
func (s *Server) frame(next http.Handler) http.Handler {
	lowest, highest := strconv.Itoa(s.cfg.Protocol.Min), strconv.Itoa(s.cfg.Protocol.Max)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("Vary", "Accept-Encoding")
		h.Set(api.HeaderProtocolMin, lowest)
		h.Set(api.HeaderProtocolMax, highest)
		h.Set(api.HeaderRequestID, newUUID())
		if r.ContentLength != 0 {
			// Also of a body that nobody reads: net/http reads it to its end before
			// it sends an answer.
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(rest.ReadTimeout)); err != nil {
				s.cfg.Log.Debug("read deadline not set", "err", err)
			}
		}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			rest.Fail(w, r, api.Errorf(api.Internal, "the server failed; its log says why").Because(fmt.Errorf("panic: %v\n%s", p, debug.Stack())))
		}()
		next.ServeHTTP(w, r)
	})
}

// newUUID names a request: a version 4 UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// identify answers "who" before anything else is done, and on every request: a
// connection may be older than a revocation, and outlives its certificate.
func (s *Server) identify(grace time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, err := s.verifier.Identify(r.TLS, grace)
			if err == nil {
				err = s.nodes.Check(r.Context(), caller.Node)
			}
			if err != nil {
				rest.Fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), caller)))
		})
	}
}

// recognise is identify for a call that anybody may make: it names the caller
// where that can be told.
func (s *Server) recognise(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller, err := s.verifier.Identify(r.TLS, 0); err == nil {
			r = r.WithContext(auth.With(r.Context(), caller))
		}
		next.ServeHTTP(w, r)
	})
}

// describe reads what the agent says of itself in headers. A call whose
// protocol is outside of the served range has no effect at all, unless it is
// one of the frozen ones (PROTOCOL.md section 1).
func (s *Server) describe(frozen bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, err := described(auth.From(r.Context()), r.Header)
			if err == nil && !frozen {
				err = s.speaks(caller)
			}
			if err != nil {
				rest.Fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), caller)))
		})
	}
}

func described(c auth.Caller, h http.Header) (_ auth.Caller, err error) {
	c.Protocol = 1 // older agents than the header said nothing
	if text := h.Get(api.HeaderProtocol); text != "" {
		if c.Protocol, err = strconv.Atoi(text); err != nil || c.Protocol < 0 {
			return c, api.Errorf(api.Invalid, "%s must be a whole number, not %q", api.HeaderProtocol, text)
		}
	}
	c.Version = h.Get(api.HeaderAgentVersion)
	if len(c.Version) > 64 || strings.ContainsFunc(c.Version, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return c, api.Errorf(api.Invalid, "%s must be at most 64 printable ASCII characters", api.HeaderAgentVersion)
	}
	if text := h.Get(api.HeaderAgentInstance); text != "" {
		c.Instance, err = api.ParseInstance(text)
	}
	return c, err
}

func (s *Server) speaks(c auth.Caller) error {
	served := s.cfg.Protocol
	if c.Protocol >= served.Min && c.Protocol <= served.Max {
		return nil
	}
	upgrade := "control-plane"
	if c.Protocol < served.Min {
		upgrade = "agent"
	}
	e := api.Errorf(api.UpgradeRequired, "protocol %d is not served: this control plane serves %d to %d; upgrade the %s",
		c.Protocol, served.Min, served.Max, upgrade)
	e.Versions = &api.Versions{
		Reason: e.Detail, AgentVersion: c.Version, AgentProtocol: c.Protocol,
		SupportedMin: served.Min, SupportedMax: served.Max, Upgrade: upgrade,
	}
	return e
}

// admitOperator lets in who holds an operator token.
func (s *Server) admitOperator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operator, err := s.operators.Check(r)
		if err != nil {
			rest.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.WithOperator(r.Context(), operator)))
	})
}
