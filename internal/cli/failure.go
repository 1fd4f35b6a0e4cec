package cli

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
)

// Exit codes that no api.Code has.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 6
	exitTimedOut    = 8
	exitInterrupted = 130
)

// exitRows is the table of the help: what each exit code means.
func exitRows() [][2]string {
	return [][2]string{
		{"0", "done"},
		{"1", "it failed: what was asked for was tried, and did not work"},
		{"2", "usage: the command line, or a value in it, is wrong"},
		{"3", "the credentials are missing, wrong or not enough"},
		{"4", "not found"},
		{"5", "conflict: not possible as things stand"},
		{"6", "the server cannot be reached, or cannot answer now: try again"},
		{"7", "one side is too old: upgrade it"},
		{"8", "timed out: it is still going on, and was not called off"},
		{"77", "the node is revoked"},
		{"130", "interrupted"},
	}
}

// Failure is an error with an exit code of its own.
type Failure struct {
	Exit   int    `json:"-"`
	Code   string `json:"code"` // a word for programs
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"` // what to do about it

	cause   error
	problem *api.Error
}

// Error is the detail.
func (f *Failure) Error() string { return f.Detail }

// Unwrap is what the failure was made of.
func (f *Failure) Unwrap() error { return f.cause }

// Usagef is a command line that makes no sense.
func Usagef(format string, args ...any) *Failure {
	return &Failure{Exit: exitUsage, Code: "usage", Detail: fmt.Sprintf(format, args...)}
}

// Failedf is an action that was carried out, and did not work.
func Failedf(format string, args ...any) *Failure {
	return &Failure{Exit: exitFailed, Code: "failed", Detail: fmt.Sprintf(format, args...)}
}

// TimedOutf is an action that goes on, though nobody waits for it any more.
func TimedOutf(format string, args ...any) *Failure {
	return &Failure{Exit: exitTimedOut, Code: "timed_out", Detail: fmt.Sprintf(format, args...)}
}

// WithHint adds what to do to an error that does not say it.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Unreachable is what kept a server from answering, with what to check. err is
// a *client.Weather or the network's.
func Unreachable(err error) *Failure {
	detail := err.Error()
	if u, ok := errors.AsType[*url.Error](err); ok {
		detail = fmt.Sprintf("cannot reach %s: %v", origin(u.URL), u.Err)
	}
	return &Failure{Exit: exitUnreachable, Code: "unreachable", Detail: detail, Hint: check(err), cause: err}
}

func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Scheme + "://" + u.Host
}

// check says what a person should look at.
func check(err error) string {
	if w, ok := errors.AsType[*client.Weather](err); ok {
		return checkWeather(w)
	}
	if _, ok := errors.AsType[*client.PinError](err); ok {
		return "" // it says so itself
	}
	_, unresolved := errors.AsType[*net.DNSError](err)
	timeout, _ := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there; is the server running, and is this its address?"
	case unresolved:
		return "the name does not resolve; check its spelling, and the DNS of this machine"
	case untrusted(err):
		return "this machine does not trust that certificate; pin the cluster's CA by its fingerprint (BECKON_CA_SHA256)"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it speaks plain HTTP; the address begins with http://, not https://"
	case timeout != nil && timeout.Timeout():
		return "nobody answers; check the address, and the firewalls on the way"
	}
	return "check the address, and that the server is running"
}

func checkWeather(w *client.Weather) string {
	if w.Status == http.StatusBadRequest && strings.Contains(w.Beginning, "HTTP request to an HTTPS server") {
		return "it speaks TLS; the address begins with https://, not http://"
	}
	return "check the address and its port, and the proxies on the way (HTTPS_PROXY, NO_PROXY)"
}

func untrusted(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return authority || name || invalid
}

// explain makes of any error what is printed and which code is returned.
func explain(ctx context.Context, err error) *Failure {
	f := *classify(ctx, err)
	if h, ok := errors.AsType[*hinted](err); ok && f.Hint == "" {
		f.Hint = h.hint
	}
	return &f
}

func classify(ctx context.Context, err error) *Failure {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &Failure{Exit: exitInterrupted, Code: "interrupted", Detail: "interrupted", cause: err}
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return &Failure{Exit: e.Code.Exit(), Code: string(e.Code), Detail: e.Detail, Hint: remedy(e.Code), cause: err, problem: e}
	}
	if network(err) {
		return Unreachable(err)
	}
	return &Failure{Exit: exitFailed, Code: "failed", Detail: err.Error(), cause: err}
}

// network asks for the types themselves: net.Error is an interface that a
// missing file's error satisfies as well.
func network(err error) bool {
	_, weather := errors.AsType[*client.Weather](err)
	_, pin := errors.AsType[*client.PinError](err)
	_, address := errors.AsType[*url.Error](err)
	_, operation := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	return weather || pin || address || operation || name
}

func remedy(c api.Code) string {
	switch c {
	case api.OperatorTokenMissing, api.OperatorTokenInvalid:
		return "on the server's machine, `beckon server token --data DIR` makes an operator token; give it in BECKON_TOKEN or by --token"
	}
	return ""
}

// print writes the failure to stderr: a line and what to do, or one JSON
// document, which is the server's own where the server said no.
func (f *Failure) print(w io.Writer, program string, asJSON bool) {
	if asJSON {
		var document any = f
		if f.problem != nil {
			document = f.problem
		}
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.Encode(document)
		return
	}
	fmt.Fprintf(w, "%s: %s\n", program, Printable(f.Detail))
	if f.Hint != "" {
		fmt.Fprintf(w, "hint: %s\n", Printable(f.Hint))
	}
}
