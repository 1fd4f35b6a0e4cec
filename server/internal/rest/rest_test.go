package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
)

// protocol stands for the server's middleware, by whose headers a client knows
// its server.
func protocol(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderProtocolMax, "1")
		next.ServeHTTP(w, r)
	})
}

type listRequest struct {
	api.Cursor
	App string `path:"app" json:"-"`
}

type documentRequest struct {
	Have string `header:"If-None-Match" json:"-"`
}

type document struct {
	Version int `json:"version"`
}

func (document) ETag() string { return `"7"` }

type sendRequest struct {
	api.Write
	Kind string `json:"kind"`
}

type sendResponse struct {
	ID   string `json:"id"`
	done bool
}

func (s sendResponse) HTTPStatus() int {
	if s.done {
		return http.StatusOK
	}
	return http.StatusAccepted
}

var (
	list   = api.Endpoint[listRequest, api.Page[listRequest]]{Method: "GET", Path: "/apps/{app}/deployments"}
	get    = api.Endpoint[documentRequest, document]{Method: "GET", Path: "/document"}
	send   = api.Endpoint[sendRequest, sendResponse]{Method: "POST", Path: "/commands", Status: http.StatusCreated}
	remove = api.Endpoint[struct{}, struct{}]{Method: "DELETE", Path: "/apps"}
	refuse = api.Endpoint[struct{}, struct{}]{Method: "POST", Path: "/refuse"}
)

func start(t *testing.T, bind func(*Router)) *client.Client {
	r := NewRouter(true, protocol)
	bind(r)
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return client.New(s.URL, s.Client().Transport, nil)
}

func TestParametersArriveAsTheyWereSent(t *testing.T) {
	var got listRequest
	c := start(t, func(r *Router) {
		Bind(r, list, func(_ context.Context, req listRequest) (api.Page[listRequest], error) {
			got = req
			return api.Page[listRequest]{Next: "there is more"}, nil
		})
	})
	for _, app := range []string{"web", "100%", "a/b", "%25", "{app}", "a b?c=d"} {
		want := listRequest{Cursor: api.Cursor{Limit: 5, After: "x&y"}, App: app}
		page, err := client.Call(t.Context(), c, list, want)
		if err != nil || got != want || page.Next != "there is more" {
			t.Errorf("%q: got %+v, %+v, %v", app, got, page, err)
		}
	}
}

func TestStatusHeadersAndETag(t *testing.T) {
	c := start(t, func(r *Router) {
		Bind(r, get, func(context.Context, documentRequest) (document, error) { return document{7}, nil })
		Bind(r, remove, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
		Bind(r, send, func(_ context.Context, req sendRequest) (sendResponse, error) {
			return sendResponse{ID: req.Kind + " " + req.Key, done: req.Wait == 30}, nil
		})
	})
	if d, err := client.Call(t.Context(), c, get, documentRequest{}); err != nil || d.Version != 7 {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := client.Call(t.Context(), c, get, documentRequest{`"7"`}); !errors.Is(err, client.ErrNotModified) {
		t.Errorf("want not modified, got %v", err)
	}
	if _, err := client.Call(t.Context(), c, remove, struct{}{}); err != nil {
		t.Error(err)
	}
	res, err := client.Call(t.Context(), c, send, sendRequest{api.Write{Key: "k1", Wait: 30}, "stop"})
	if err != nil || res.ID != "stop k1" {
		t.Errorf("got %+v, %v", res, err)
	}
	if status := post(t, c, "/commands", `{"kind": "stop"}`, nil); status != http.StatusAccepted {
		t.Errorf("want 202 without Prefer, got %d", status)
	}
	if status := post(t, c, "/commands", `{}`, http.Header{"Prefer": {"wait=30"}}); status != http.StatusOK {
		t.Errorf("want 200 with Prefer, got %d", status)
	}
}

func TestRefusalsHaveCodes(t *testing.T) {
	c := start(t, func(r *Router) {
		Bind(r, send, func(context.Context, sendRequest) (sendResponse, error) { return sendResponse{}, nil })
		Bind(r, list, func(context.Context, listRequest) (res api.Page[listRequest], err error) { return res, nil })
		Bind(r, refuse, func(context.Context, struct{}) (struct{}, error) {
			return struct{}{}, api.Errorf(api.NodeRevoked, "join again").Because(errors.New("a secret"))
		})
		r.Get("/page", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusForbidden) })
	})
	_, err := client.Call(t.Context(), c, refuse, struct{}{})
	if !errors.Is(err, api.NodeRevoked) || strings.Contains(err.Error(), "secret") {
		t.Errorf("want node_revoked and no cause, got %v", err)
	}
	for path, want := range map[string]error{"/nowhere": api.NotFound, "/commands": api.MethodNotAllowed} {
		_, err := client.Call(t.Context(), c, api.Endpoint[struct{}, struct{}]{Method: "GET", Path: path}, struct{}{})
		if !errors.Is(err, want) {
			t.Errorf("%s: want %v, got %v", path, want, err)
		}
	}
	_, err = client.Call(t.Context(), c, api.Endpoint[struct{}, struct{}]{Method: "GET", Path: "/page"}, struct{}{})
	if w, ok := errors.AsType[*client.Weather](err); !ok || w.Status != http.StatusForbidden {
		t.Errorf("a proxy's page is weather, got %v", err)
	}
	for body, want := range map[string]int{
		`{"kind": "` + strings.Repeat("x", 2<<20) + `"}`: http.StatusRequestEntityTooLarge,
		`{"kind": "x"} y`: http.StatusBadRequest,
		`{"kind": 7}`:     http.StatusBadRequest,
		`{"kind": `:       http.StatusBadRequest,
		``:                http.StatusAccepted,
	} {
		if status := post(t, c, "/commands", body, nil); status != want {
			t.Errorf("%.20q: want %d, got %d", body, want, status)
		}
	}
}

func TestUnsupportedParameterPanicsAtStart(t *testing.T) {
	type request struct {
		Ratio float64 `query:"ratio"`
	}
	defer func() {
		if recover() == nil {
			t.Error("Bind took a float64")
		}
	}()
	Bind(NewRouter(false), api.Endpoint[request, struct{}]{Method: "GET", Path: "/"}, nil)
}

func post(t *testing.T, c *client.Client, path, body string, header http.Header) int {
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.Base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := c.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
