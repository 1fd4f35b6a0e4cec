package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3filter"
)

// witness looks at what passes.
type witness struct {
	*Contract
	next http.RoundTripper
}

// RoundTrip has next do it. A body is read to its end before the answer is
// handed on, but that of an event stream.
func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	r, sent, err := keepBody(r)
	if err != nil {
		return nil, err
	}
	res, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err // nobody has answered
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // none at all is judged below
	var got []byte
	if kind != "text/event-stream" {
		var broken error
		got, broken = io.ReadAll(res.Body)
		res.Body.Close()
		res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(got), failing{broken}))
		if broken != nil {
			return res, nil // half an answer breaks no rule
		}
	}
	if err := w.judge(r, sent, res, kind, got); err != nil {
		w.t.Errorf("%s %s was answered with %d, against the OpenAPI document: %v", r.Method, r.URL.RequestURI(), res.StatusCode, err)
	}
	return res, nil
}

// keepBody returns the request, and what its body holds.
func keepBody(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	r.Body.Close()
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return r, body, nil
}

// failing ends a body as the connection did.
type failing struct{ err error }

// Read returns the error, or the end.
func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

func (w *witness) judge(r *http.Request, sent []byte, res *http.Response, kind string, got []byte) error {
	route, params, err := w.router(r).FindRoute(r)
	if err != nil {
		return fmt.Errorf("find the call: %w", err)
	}
	answer := route.Operation.Responses.Status(res.StatusCode)
	if answer == nil {
		return errors.New("the call has no such status")
	}
	if len(got) > 0 && len(answer.Value.Content) == 0 {
		return errors.New("the answer must have no body")
	}
	stream := kind == "text/event-stream"
	if stream && answer.Value.Content.Get(kind) == nil {
		return errors.New("the call has no event stream")
	}
	r = r.Clone(context.Background())
	r.Body = io.NopCloser(bytes.NewReader(sent))
	if body := route.Operation.RequestBody; body != nil {
		for takes := range body.Value.Content { // there is one
			r.Header.Set("Content-Type", takes) // whatever curl says: servers do not judge it
		}
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc,
			IncludeResponseStatus: true,
			ExcludeRequestBody:    r.Header.Get("Content-Encoding") != "",
			ExcludeResponseBody:   stream,
		},
	}
	if res.StatusCode < 400 || res.StatusCode >= 500 {
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			return fmt.Errorf("the request was taken: %w", err)
		}
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header,
		Body: io.NopCloser(bytes.NewReader(got)), Options: input.Options,
	})
}
