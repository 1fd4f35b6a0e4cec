package once_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
	"github.com/beckon-fleet/beckon/server/internal/once"
	"github.com/beckon-fleet/beckon/server/internal/rest"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// makeThing is a call with an effect, which may take a while and may panic.
var makeThing = api.Endpoint[thing, thing]{Method: http.MethodPost, Path: "/things", Status: http.StatusCreated}

type thing struct {
	api.Write `json:"-"`
	Name      string `json:"name"`
	Made      int    `json:"made"`
}

// surface is a router with that call, over a network in memory.
type surface struct {
	t      *testing.T
	client *http.Client
	broken bool // the call panics after its effect
}

func newSurface(t *testing.T, f *servertest.Fleet) *surface {
	s := &surface{t: t}
	r := rest.NewRouter(true, recoverer)
	r.Once(&once.Keeper{Store: f.Store}, func(*http.Request) string { return "optok_1" })
	rest.Bind(r, makeThing, func(ctx context.Context, req thing) (thing, error) {
		err := effect(ctx, f)
		made := effects(t, f)
		select {
		case <-ctx.Done(): // the caller has gone; what was asked is done all the same
		case <-time.After(req.Wait.Duration()):
		}
		if s.broken {
			panic("broken")
		}
		return thing{Name: req.Name, Made: made}, err
	})
	n := memnet.New()
	web := &http.Server{Handler: r}
	go web.Serve(n)
	transport := &http.Transport{DialContext: n.Dial}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		web.Close()
	})
	return s
}

func recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "it panicked", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// post asks for a thing; a wait of 0 is none.
func (s *surface) post(ctx context.Context, key, name string, wait api.Wait) (status int, body, replayed string, err error) {
	s.t.Helper()
	target, header := makeThing.Encode(thing{Write: api.Write{Key: key, Wait: wait}})
	r, err := http.NewRequestWithContext(ctx, makeThing.Method, "http://server"+target, strings.NewReader(`{"name": "`+name+`"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = header
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), answer.Header.Get(api.HeaderReplayed), err
}

// expect is post with what must come.
func (s *surface) expect(what, key, name string, status int, body, replayed string) {
	s.t.Helper()
	got, text, again, err := s.post(s.t.Context(), key, name, 0)
	if err != nil || got != status || !strings.Contains(text, body) || again != replayed {
		s.t.Errorf("%s: got %d %s, replayed %q, %v; want %d %s, replayed %q", what, got, text, again, err, status, body, replayed)
	}
}

func TestWhileTheFirstWaits(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newSurface(t, f)
		var first sync.WaitGroup
		first.Go(func() {
			status, body, replayed, err := s.post(t.Context(), "k", "a", 30)
			if err != nil || status != 201 || !strings.Contains(body, `"made":1`) || replayed != "" {
				t.Errorf("the first: %d %s, replayed %q, %v", status, body, replayed, err)
			}
		})
		time.Sleep(10 * time.Second)
		s.expect("the same", "k", "a", 409, "idempotency_key_in_use", "")
		s.expect("another body", "k", "b", 409, "idempotency_key_in_use", "")
		s.expect("another key", "k2", "a", 201, `"made":2`, "")
		first.Wait()
		s.expect("the same, afterwards", "k", "a", 201, `"made":1`, "true")
		s.expect("another body, afterwards", "k", "b", 422, "idempotency_key_reused", "")
		if n := effects(t, f); n != 2 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestWhoGoesAwayFindsTheAnswer(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newSurface(t, f)
		ctx, leave := context.WithTimeout(t.Context(), 5*time.Second)
		defer leave()
		if status, body, _, err := s.post(ctx, "k", "a", 60); err == nil {
			t.Errorf("the first: %d %s", status, body)
		}
		time.Sleep(time.Second)
		s.expect("the repeat", "k", "a", 201, `"made":1`, "true")
	})
}

// A call that panics does not hold its key for ever.
func TestPanicFreesTheKey(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newSurface(t, f)
		s.broken = true
		s.expect("the first", "k", "a", 500, "it panicked", "")
		s.broken = false
		s.expect("the repeat", "k", "a", 409, "took effect", "")
		if n := effects(t, f); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestTwentyRepeatsAtOnce(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newSurface(t, f)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for {
					status, body, _, err := s.post(t.Context(), "k", "a", 0)
					switch {
					case err != nil || status != 201 && status != 409:
						t.Errorf("%d %s, %v", status, body, err)
						return
					case status == 201 && !strings.Contains(body, `"made":1`):
						t.Errorf("answered with %s", body)
						return
					case status == 201:
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
		if n := effects(t, f); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}
