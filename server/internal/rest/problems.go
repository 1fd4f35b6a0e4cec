package rest

import (
	"fmt"
	"net/http"

	"github.com/beckon-fleet/beckon/api"
)

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
		fmt.Fprintf(w, "%s (%d %s)\n\n%s\nAn agent: %s.\n", code, code.Status(), http.StatusText(code.Status()), code.Meaning(), code.Then())
	})
}
