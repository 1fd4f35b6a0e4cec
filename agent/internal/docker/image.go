package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/client"
)

// HasImage reports whether the engine has image, by name or id.
func (d *Driver) HasImage(ctx context.Context, image string) (bool, error) {
	if _, err := reference.ParseAnyReference(image); err != nil {
		return false, &Error{Refused, fmt.Sprintf("%q is not the name of an image: write it as registry/name:tag", image)}
	}
	err := d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		_, err := engine.ImageInspect(ctx, image)
		return err
	})
	if errors.Is(err, NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Pull fetches image from its registry. It lasts as long as ctx allows and
// the registry sends something.
func (d *Driver) Pull(ctx context.Context, image string) error {
	return d.call(ctx, longest, func(ctx context.Context, engine *client.Client) error {
		pulling, stop := context.WithCancel(ctx)
		defer stop()
		silence := time.AfterFunc(d.quiet, stop)
		defer silence.Stop()
		err := pull(pulling, engine, image, func() { silence.Reset(d.quiet) })
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case pulling.Err() != nil:
			return &Error{RegistryUnreachable, fmt.Sprintf("the registry of image %s has sent nothing for %s: look at the network of this node", image, d.quiet)}
		case client.IsErrConnectionFailed(err):
			return err
		}
		return registryError(image, said(err))
	})
}

func pull(ctx context.Context, engine *client.Client, image string, progress func()) error {
	stream, err := engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	for message, err := range stream.JSONMessages(ctx) {
		progress()
		if err != nil {
			return err
		}
		if message.Error != nil {
			return message.Error
		}
	}
	return nil
}

// registryError sorts what an engine says about a registry: it gives no code
// that tells a missing tag from a missing login from a missing network.
func registryError(image, text string) *Error {
	low := strings.ToLower(text)
	for _, rule := range []struct {
		reason Reason
		says   string
		words  []string
	}{
		{
			RegistryBusy, "the registry does not serve image %s for now: try again later",
			[]string{"toomanyrequests", "too many requests", "rate limit", "http status: 5"},
		},
		{
			ImageDenied, "the registry does not let this node have image %s, or has no such repository: check the name and who may pull it",
			[]string{"unauthorized", "denied", "authentication required", "no basic auth", "forbidden"},
		},
		{
			ImageUnknown, "the registry has no image %s: check its name and tag",
			[]string{"manifest unknown", "name unknown", "not found"},
		},
		{
			RegistryUnreachable, "the registry of image %s cannot be reached from this node: check its name, the network, the proxy and the certificate",
			[]string{
				"no such host", "connection refused", "connection reset", "timeout", "timed out", "no route to host", "unreachable",
				"server misbehaving", "x509", "tls:", "http response to https client", "eof",
			},
		},
	} {
		for _, word := range rule.words {
			if strings.Contains(low, word) {
				return &Error{rule.reason, fmt.Sprintf(rule.says, image) + " (Docker says: " + text + ")"}
			}
		}
	}
	return &Error{Refused, fmt.Sprintf("image %s could not be pulled (Docker says: %s)", image, text)}
}
