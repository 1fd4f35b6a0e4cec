package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Reason says why the engine did not do what it was asked to. It is a target
// of errors.Is.
type Reason string

// The reasons.
const (
	Absent    Reason = "absent"    // no engine listens there
	Forbidden Reason = "forbidden" // the agent may not use it
	Silent    Reason = "silent"    // it does not answer, or broke off
	TooOld    Reason = "too_old"   // it speaks no API version we do

	NotFound  Reason = "not_found"  // there is no such container or image
	NameTaken Reason = "name_taken" // another container has the name
	PortTaken Reason = "port_taken" // something else listens on the port

	ImageUnknown        Reason = "image_unknown"        // the registry has no such image
	ImageDenied         Reason = "image_denied"         // the registry wants a login, or hides that it has none
	RegistryBusy        Reason = "registry_busy"        // the registry cannot or will not serve for now
	RegistryUnreachable Reason = "registry_unreachable" // no way from this machine to the registry

	Refused Reason = "refused" // all else: the engine's words say it
)

// Error makes a Reason the target of errors.Is.
func (r Reason) Error() string { return string(r) }

// Error is a reason and a sentence for a person: what, and what to do. It
// holds no cause: the client's errors stay in this package.
type Error struct {
	Reason Reason
	Detail string
}

// Error is the sentence.
func (e *Error) Error() string { return e.Detail }

// Is makes errors.Is(err, docker.PortTaken) hold.
func (e *Error) Is(target error) bool { return target == e.Reason }

// explain turns what the client says into an Error. The end of the caller's
// own context stays what it is.
func (d *Driver) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("no answer from the Docker engine at %s: %w", d.host, ended)
	}
	text := said(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Silent, fmt.Sprintf("the Docker engine at %s does not answer: look at its log, or restart it", d.host)}
	case client.IsErrConnectionFailed(err):
		return &Error{Silent, fmt.Sprintf("the Docker engine at %s broke off: look at its log (%s)", d.host, text)}
	case errdefs.IsNotFound(err):
		return &Error{NotFound, text}
	case errdefs.IsConflict(err) && strings.Contains(text, "is already in use by container"):
		return &Error{NameTaken, text}
	case portTaken(text):
		return &Error{PortTaken, text}
	}
	return &Error{Refused, "Docker refuses: " + text}
}

// unreachable explains why an engine cannot be dialled.
func (d *Driver) unreachable(err error) *Error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &Error{Forbidden, fmt.Sprintf("the agent may not use the Docker engine at %s: run it as root, or add its user to the group of the socket", d.host)}
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Absent, fmt.Sprintf("there is no Docker engine at %s: install Docker and start it, or set DOCKER_HOST", d.host)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Absent, fmt.Sprintf("the Docker engine at %s is not running: start it", d.host)}
	}
	return &Error{Absent, fmt.Sprintf("the Docker engine at %s cannot be reached: look at DOCKER_HOST and the network (%v)", d.host, err)}
}

// said is what the engine said, in one line of bounded length.
func said(err error) string {
	text := strings.TrimPrefix(err.Error(), "Error response from daemon: ")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 600 {
		text = strings.ToValidUTF8(text[:600], "") + "…"
	}
	return text
}

// portTaken knows how the engines of the years say it.
func portTaken(text string) bool {
	for _, words := range []string{"port is already allocated", "address already in use", "failed to bind host port"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
