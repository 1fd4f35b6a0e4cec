package rest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

type readOptions struct {
	body   bool
	strict bool
	query  []string // the parameters that the call knows
}

// read fills req, and returns the body it was read from.
func read(w http.ResponseWriter, r *http.Request, req any, o readOptions) (body []byte, err error) {
	if o.body {
		if body, err = readBody(w, r); err != nil {
			return nil, err
		}
		if err := decode(body, req, o.strict); err != nil {
			return nil, err
		}
	}
	if err := checkQuery(r, o.strict, o.query); err != nil {
		return nil, err
	}
	if err := api.Decode(req, param(r)); err != nil {
		return nil, err
	}
	if v, ok := req.(interface{ Validate() error }); ok {
		return body, v.Validate()
	}
	return body, nil
}

// checkQuery refuses parameters that a call does not know, where it is strict.
func checkQuery(r *http.Request, strict bool, known []string) error {
	if !strict {
		return nil
	}
	for name := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return api.Errorf(api.Invalid, "this call has no query parameter %q", name)
		}
	}
	return nil
}

// readBody reads the whole body, inflated: at most api.MaxBody as sent and as
// inflated.
func readBody(w http.ResponseWriter, r *http.Request) (data []byte, err error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(ReadTimeout)); err != nil {
		slog.Debug("read deadline not set", "err", err)
	}
	defer func() {
		if err == nil { // left behind, the deadline would end a call that only waits
			control.SetReadDeadline(time.Time{})
		}
	}()
	var body io.Reader = http.MaxBytesReader(w, r.Body, api.MaxBody)
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip":
		inflated, err := gzip.NewReader(body)
		if err != nil {
			return nil, api.Errorf(api.Invalid, "the body is not gzip").Because(err)
		}
		body = inflated
	default:
		return nil, api.Errorf(api.EncodingUnsupported, "Content-Encoding %q is not known here; send gzip or none", r.Header.Get("Content-Encoding"))
	}
	data, err = io.ReadAll(io.LimitReader(body, api.MaxBody+1))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge || len(data) > api.MaxBody:
		return nil, api.Errorf(api.TooLarge, "the body is larger than %d bytes", api.MaxBody)
	case err != nil:
		return nil, api.Errorf(api.Invalid, "the body could not be read to its end").Because(err)
	}
	return data, nil
}

// decode reads a request from JSON. Text that cannot be stored is refused where
// a person has sent it, and mended where an agent has: a byte in a log must not
// cost it the answer to a result.
func decode(body []byte, req any, strict bool) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil // an empty body is an empty request
	}
	mended := mend(body)
	if strict && !bytes.Equal(mended, body) {
		return api.Errorf(api.Invalid, `the body is not UTF-8, or a string in it holds a NUL (\u0000), which cannot be stored`)
	}
	body = mended
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(req); err != nil {
		return explain(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return api.Errorf(api.Invalid, "something follows the JSON value in the body")
	}
	return nil
}

var unknownField = regexp.MustCompile(`unknown (?:field|object member name) ("[^"]*")`)

// explain says which member is at fault and why.
func explain(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return api.Errorf(api.Invalid, "this call has no member %s", m[1]).Because(err)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return api.Errorf(api.Invalid, "%s: a JSON %s does not fit there", e.Field, e.Value).Because(err)
	}
	return api.Errorf(api.Invalid, "the body is not the JSON this call takes").Because(err)
}
