package rest

import (
	"fmt"
	"net/http"

	"github.com/beckon-fleet/beckon/api"
)

// doing is what an agent does, in words.
func doing(t api.Then) string {
	return map[api.Then]string{
		api.ThenRetry:  "retries with backoff",
		api.ThenGiveUp: "gives up this request",
		api.ThenSlow:   "slows down to once in five minutes",
		api.ThenStop:   "stops and forgets what it holds",
	}[t]
}

// Problems serves what the type of every problem refers to: what the code
// means, and what to do (RFC 9457 section 3.1.1).
func Problems(r *Router) {
	r.MethodFunc(http.MethodGet, "/problems/{code}", func(w http.ResponseWriter, r *http.Request) {
		code := api.Code(r.PathValue("code"))
		if code.Meaning() == "" {
			Fail(w, r, api.Errorf(api.NotFound, "there is no problem %q", code))
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "%s (%d %s)\n\n%s\nAn agent: %s.\n", code, code.Status(), http.StatusText(code.Status()), code.Meaning(), doing(code.Then()))
	})
}
