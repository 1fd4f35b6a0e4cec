package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// refuser is a server that says yes to every call but one.
type refuser struct {
	*httptest.Server
	refuse string // last part of the call's path

	mu    sync.Mutex
	calls []string
}

func newRefuser(t *testing.T, refuse string) *refuser {
	t.Helper()
	r := &refuser{refuse: refuse}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *refuser) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	call := path.Base(req.URL.Path)
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	if call != r.refuse {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
		return
	}
	code := map[string]api.Code{"ack": api.CommandCanceled, "result": api.ResultDiffers}[call]
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code.Status())
	fmt.Fprintf(w, `{"status": %d, "code": %q, "then": %q, "detail": "no"}`, code.Status(), code, code.Then())
}

func (r *refuser) called() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.calls, " ")
}

// A command runs if it verifies, the agent can do it and the server lets it,
// and then once, however often it comes and whatever is refused.
func TestCurlAgentObeys(t *testing.T) {
	t.Parallel()
	const stop = `"kind": "stop", "expires_at": "2026-11-30T09:27:56Z"`
	for name, c := range map[string]struct {
		document string
		forged   bool
		hookless bool
		before   string // what the last process has left of it
		refuse   string
		calls    string // of obeying it twice
		status   string // at the end
		hook     int
	}{
		"good":            {document: stop, calls: "ack result result", status: "succeeded", hook: 1},
		"told in vain":    {document: stop, refuse: "result", calls: "ack result result", status: "succeeded", hook: 1},
		"forged":          {document: stop, forged: true},
		"canceled":        {document: stop, refuse: "ack", calls: "ack result", status: "rejected command_canceled"},
		"no hook":         {document: stop, hookless: true, calls: "result result", status: "rejected invalid"},
		"another kind":    {document: strings.Replace(stop, "stop", "sh", 1), calls: "result result", status: "rejected invalid"},
		"without an end":  {document: `"kind": "stop"`, calls: "result result", status: "rejected invalid"},
		"by a time":       {document: stop + `, "start_by": "2126-11-30T00:00:00.5Z"`, calls: "result result", status: "rejected invalid"},
		"died asking":     {document: stop, before: "unknown asking", calls: "ack result result", status: "succeeded", hook: 1},
		"died while busy": {document: stop, before: "unknown interrupted", calls: "result result", status: "unknown interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, server := t.TempDir(), newRefuser(t, c.refuse)
			for _, folder := range []string{"trust", "results"} {
				if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			document := `{"id": "cmd_1", ` + c.document + `, "payload": {"app_id":"app_1","app":"shop"}}`
			e := trustedSigner(t, filepath.Join(dir, "trust")).Sign(seal.TagCommand, "node_1", 7, []byte(document))
			if c.forged {
				e.Seq++
			}
			result := filepath.Join(dir, "results", "cmd_1")
			if status, reason, ok := strings.Cut(c.before, " "); ok {
				writeJSON(t, result, api.Result{Status: api.Outcome(status), Reason: reason})
			}
			hook, err := filepath.Abs(curlAgentHook)
			if err != nil {
				t.Fatal(err)
			}
			if c.hookless {
				hook = ""
			}
			sourced(t, `export CURL_AGENT_HOOK=$3 HOOK_LOG=$1/log
				state=$1 tmp=$1 address=$2
				as=(--insecure) joined=yes failures=0 node=node_1
				obey "$4" 2>/dev/null
				obey "$4" 2>/dev/null
				true`, dir, server.Listener.Addr().String(), hook, writeJSON(t, filepath.Join(dir, "envelope"), e))
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			var got api.Result
			if text, err := os.ReadFile(result); err == nil && json.Unmarshal(text, &got) != nil {
				t.Errorf("the result is %q", text)
			}
			status := strings.TrimSpace(string(got.Status) + " " + got.Reason)
			if n := strings.Count(string(log), "\n"); server.called() != c.calls || status != c.status || n != c.hook {
				t.Errorf("calls %q, status %q, %d times run", server.called(), status, n)
			}
		})
	}
}
