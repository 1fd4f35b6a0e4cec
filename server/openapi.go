package server

import (
	"fmt"
	"net/http"

	"github.com/beckon-fleet/beckon/schema"
	"github.com/beckon-fleet/beckon/server/internal/rest"
)

// The OpenAPI documents by the surface they describe.
const (
	agentDocument    = "openapi/agent.yaml"
	operatorDocument = "openapi/operator.yaml"
)

// documents serves both OpenAPI documents to whoever asks, and the listener's
// own as /openapi.yaml.
func documents(r *rest.Router, own string) {
	serveDocument(r, "/openapi.yaml", own)
	serveDocument(r, "/"+agentDocument, agentDocument)
	serveDocument(r, "/"+operatorDocument, operatorDocument)
}

func serveDocument(r *rest.Router, path, document string) {
	r.MethodFunc(http.MethodGet, path, func(w http.ResponseWriter, q *http.Request) {
		text, err := schema.Files.ReadFile(document)
		if err != nil {
			rest.Fail(w, q, fmt.Errorf("read document: %w", err))
			return
		}
		w.Header().Set("Content-Type", "application/yaml") // RFC 9512
		w.Write(text)                                      // a caller that has gone needs no answer
	})
}
