package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/schema"
)

// Anybody may read the documents, on either listener.
func TestDocumentsAreServed(t *testing.T) {
	s, err := New(t.Context(), Config{Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for listener, c := range map[string]struct {
		routes http.Handler
		own    string
	}{
		"agents":    {s.agentRoutes(), agentDocument},
		"operators": {s.operatorRoutes(), operatorDocument},
	} {
		for path, document := range map[string]string{
			"/openapi.yaml": c.own, "/openapi/agent.yaml": agentDocument, "/openapi/operator.yaml": operatorDocument,
		} {
			want, err := schema.Files.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			c.routes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			h := w.Header()
			if w.Code != http.StatusOK || w.Body.String() != string(want) || h.Get("Content-Type") != "application/yaml" || h.Get(api.HeaderRequestID) == "" {
				t.Errorf("%s, %s: %d, %v, %d bytes", listener, path, w.Code, h, w.Body.Len())
			}
		}
	}
}
