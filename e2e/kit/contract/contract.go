// Package contract holds what tests send and receive to the OpenAPI documents:
// whoever answers something that they do not say fails the test.
package contract

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/schema"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// Contract is both documents, on behalf of one test.
type Contract struct {
	t                testing.TB
	agent, operators routers.Router
}

// New reads the documents, and fails the test where they are no valid OpenAPI.
func New(t testing.TB) *Contract {
	t.Helper()
	return &Contract{t: t, agent: load(t, "agent.yaml"), operators: load(t, "operator.yaml")}
}

// For is the same contract on behalf of another test: reading the documents takes
// a while.
func (c *Contract) For(t testing.TB) *Contract { return &Contract{t, c.agent, c.operators} }

// Wrap passes requests on to next and looks at the answers. A request is looked
// at too, unless it was refused: tests send malformed ones on purpose. Of an
// event stream only the beginning is judged. A path that is no call of the
// documents fails the test, whatever the answer.
func (c *Contract) Wrap(next http.RoundTripper) http.RoundTripper { return &witness{c, next} }

func (c *Contract) router(r *http.Request) routers.Router {
	if strings.HasPrefix(r.URL.Path, "/agent/") {
		return c.agent
	}
	return c.operators
}

func load(t testing.TB, name string) routers.Router {
	t.Helper()
	text, err := schema.Files.ReadFile("openapi/" + name)
	if err != nil {
		t.Fatalf("%s: %v; run make generate", name, err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatalf("%s is no OpenAPI document: %v", name, err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("%s is no valid OpenAPI document: %v", name, err)
	}
	doc.Servers = nil // tests have their own
	closeObjects(doc)
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	// For 3.1 the library compiles a JSON schema at each look at a value, which
	// takes milliseconds; for 3.0 its own validator takes microseconds, and the
	// documents use nothing that it does not know.
	doc.OpenAPI = "3.0.3"
	return router
}

// closeObjects has every object refuse members that it does not list. In the
// published documents they are open, since newer servers say more; this server
// must not say what its document does not.
func closeObjects(doc *openapi3.T) {
	no := false
	for _, s := range doc.Components.Schemas {
		if s.Value.Type.Is("object") && s.Value.AdditionalProperties.Schema == nil {
			s.Value.AdditionalProperties.Has = &no
		}
	}
}
