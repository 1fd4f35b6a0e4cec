package server

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

const beat = `{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1}`

// Every answer has the same headers, whatever it is and whatever it came over;
// the client of these tests looks at each.
func TestEveryAnswerIsFramed(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	_, certificate := c.join("web")
	for _, http2 := range []bool{false, true} {
		node, nobody := c.client(http2, certificate), c.client(http2, nil)
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		z.Write(make([]byte, 4<<20))
		z.Close()
		tag := c.send(node, "GET", c.agents+"/agent/v1/cursors", "", nil).Header.Get("ETag")
		for _, q := range []struct {
			by           *http.Client
			method, path string
			body         string
			header       http.Header
			want         int
		}{
			{node, "POST", "/agent/v1/heartbeat", beat, nil, 200},
			{node, "GET", "/agent/v1/cursors?wait=1", "", http.Header{"If-None-Match": {tag}}, 304},
			{node, "GET", "/agent/v1/cursors?wait=61", "", nil, 400},
			{node, "POST", "/agent/v1/heartbeat", `{}`, nil, 400},
			{node, "POST", "/agent/v1/heartbeat", beat, http.Header{"X-Protocol": {"one"}}, 400},
			{nobody, "POST", "/agent/v1/heartbeat", beat, nil, 401},
			{nobody, "POST", "/agent/v1/join", `{"token": "x", "csr": "x"}`, nil, 400},
			{node, "GET", "/agent/v1/nothing", "", nil, 404},
			{nobody, "GET", "/", "", nil, 404},
			{nobody, "GET", "/problems/node_revoked", "", nil, 200},
			{node, "PUT", "/agent/v1/heartbeat", beat, nil, 405},
			{node, "POST", "/agent/v1/heartbeat", bomb.String(), http.Header{"Content-Encoding": {"gzip"}}, 413},
			{node, "POST", "/agent/v1/heartbeat", beat, http.Header{"Content-Encoding": {"br"}}, 415},
			{node, "POST", "/agent/v1/heartbeat", beat, http.Header{"X-Protocol": {"99"}}, 426},
		} {
			got := c.send(q.by, q.method, c.agents+q.path, q.body, q.header)
			if got.StatusCode != q.want || (got.ProtoMajor == 2) != http2 {
				t.Errorf("%s %s: want %d, got %d over %s: %s", q.method, q.path, q.want, got.StatusCode, got.Proto, got.body)
			}
			if challenge := got.Header.Get("WWW-Authenticate"); (challenge != "") != (q.want == 401) {
				t.Errorf("%s %s: WWW-Authenticate %q", q.method, q.path, challenge)
			}
		}
	}
}

func TestOperatorSurfaceIsFramed(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	for _, q := range []struct {
		method, path, body string
		header             http.Header
		want               int
	}{
		{"GET", "/healthz", "", nil, 200},
		{"GET", "/readyz", "", nil, 200},
		{"GET", "/problems/invalid", "", nil, 200},
		{"GET", "/api/v1/status", "", nil, 401},
		{"GET", "/api/v1/status", "", http.Header{"Authorization": {"Bearer bkn_op_x"}}, 401},
		{"GET", "/api/v1/nothing", "", nil, 404},
		{"PUT", "/api/v1/status", "", nil, 405},
	} {
		got := c.send(http.DefaultClient, q.method, c.operators+q.path, q.body, q.header)
		if got.StatusCode != q.want || q.want == 401 && got.Header.Get("WWW-Authenticate") != `Bearer realm="beckon"` {
			t.Errorf("%s %s: want %d, got %d, %v", q.method, q.path, q.want, got.StatusCode, got.Header)
		}
	}
	for target, want := range map[string]int{
		"/api/v1/status": 200, "/api/v1/status?x=1": 400, "/api/v1/nodes/nobody": 404, "/api/v1/nodes?status=asleep": 400,
	} {
		if got := c.operate("GET", target, ""); got.StatusCode != want {
			t.Errorf("%s: want %d, got %d: %s", target, want, got.StatusCode, got.body)
		}
	}
}

// A panic is a 500 like every other failure, and ends one request only.
func TestPanicIsAProblem(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	web := httptest.NewServer(c.frame(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a secret") })))
	defer web.Close()
	for range 2 {
		got := c.send(web.Client(), "GET", web.URL, "", nil)
		if got.refused(t, "a panic", api.Internal); strings.Contains(string(got.body), "secret") {
			t.Errorf("it tells what is none of the caller's business: %s", got.body)
		}
	}
	gone := httptest.NewServer(c.frame(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })))
	defer gone.Close()
	if answer, err := gone.Client().Get(gone.URL); err == nil {
		answer.Body.Close()
		t.Errorf("an aborted answer arrived: %d", answer.StatusCode)
	}
}

func TestUpgradeRequired(t *testing.T) {
	t.Parallel()
	c := run(t, Config{Protocol: api.ProtocolRange{Min: 2, Max: 3}})
	var token api.CreatedJoinToken
	c.operate("POST", "/api/v1/join-tokens", `{"name": "web"}`).into(t, 201, &token)
	for _, http2 := range []bool{false, true} {
		for protocol, side := range map[string]string{"": "agent", "0": "agent", "1": "agent", "4": "control-plane", "2147483647": "control-plane"} {
			header := http.Header{"X-Agent-Version": {"0.9.1"}}
			if protocol != "" {
				header.Set("X-Protocol", protocol)
			}
			got := c.send(c.client(http2, nil), "POST", c.agents+"/agent/v1/join", `{"token": "`+token.Token+`", "csr": "x"}`, header)
			got.refused(t, "protocol "+protocol, api.UpgradeRequired)
			var body map[string]any
			if err := json.Unmarshal(got.body, &body); err != nil {
				t.Fatal(err)
			}
			asked, _ := strconv.Atoi(protocol)
			if protocol == "" {
				asked = 1
			}
			if body["agent_version"] != "0.9.1" || body["agent_protocol"] != float64(asked) || body["supported_min"] != 2.0 ||
				body["supported_max"] != 3.0 || body["upgrade"] != side || body["error"] == "" || body["error"] != body["detail"] {
				t.Errorf("protocol %q: %s", protocol, got.body)
			}
			// Over HTTP/2 these two are a protocol error.
			upgrade, connection := got.Header.Get("Upgrade"), got.Header.Get("Connection")
			if http2 && upgrade+connection != "" || !http2 && (upgrade != "beckon/3" || connection != "Upgrade") {
				t.Errorf("over %s: Upgrade %q, Connection %q", got.Proto, upgrade, connection)
			}
			if got.Header.Get(api.HeaderProtocolMin) != "2" || got.Header.Get(api.HeaderProtocolMax) != "3" {
				t.Errorf("the range is %v", got.Header)
			}
		}
	}
	var tokens api.Page[api.JoinToken]
	if c.operate("GET", "/api/v1/join-tokens", "").into(t, 200, &tokens); tokens.Items[0].State != api.TokenStateUnused {
		t.Errorf("the token is %s", tokens.Items[0].State)
	}
}

// Trust and renew answer agents of every age, so that an old one can be
// brought up to date; and who calls comes before what it speaks.
func TestFrozenCallsAndTheOrderOfChecks(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	id, certificate := c.join("web")
	node, nobody := c.client(true, certificate), c.client(true, nil)
	speaks := func(protocol string) http.Header { return http.Header{"X-Protocol": {protocol}} }
	for _, protocol := range []string{"0", "1", "99", "2147483647"} {
		if got := c.send(nobody, "GET", c.agents+"/agent/v1/trust?nonce=n", "", speaks(protocol)); got.StatusCode != 200 {
			t.Errorf("trust, protocol %s: %d", protocol, got.StatusCode)
		}
		c.send(node, "POST", c.agents+"/agent/v1/renew", `{"csr": "x"}`, speaks(protocol)).refused(t, "renew, protocol "+protocol, api.CSRInvalid)
		c.send(nobody, "POST", c.agents+"/agent/v1/renew", `{"csr": "x"}`, speaks(protocol)).refused(t, "nobody's renew", api.CertificateMissing)
	}
	heartbeat := c.agents + "/agent/v1/heartbeat"
	c.send(nobody, "POST", heartbeat, `rubbish`, speaks("99")).refused(t, "identity first", api.CertificateMissing)
	c.send(node, "POST", heartbeat, `rubbish`, speaks("99")).refused(t, "then the protocol", api.UpgradeRequired)
	c.send(node, "POST", heartbeat, `rubbish`, speaks("1")).refused(t, "then the call", api.Invalid)
	c.operate("POST", "/api/v1/nodes/"+id+"/revoke", "{}")
	c.send(node, "POST", heartbeat, `rubbish`, speaks("99")).refused(t, "a revoked node", api.NodeRevoked)
	c.send(node, "POST", c.agents+"/agent/v1/renew", `{"csr": "x"}`, speaks("99")).refused(t, "a revoked node's renew", api.NodeRevoked)
	if got := c.send(node, "GET", c.agents+"/agent/v1/trust", "", nil); got.StatusCode != 200 {
		t.Errorf("trust is for everybody: %d", got.StatusCode)
	}
}

func TestWhatAnAgentSaysOfItself(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	_, certificate := c.join("web")
	node := c.client(true, certificate)
	for name, values := range map[string][]string{
		"X-Protocol":       {"one", "1.0", "-1", "1 2", "0x1", "99999999999999999999"},
		"X-Agent-Version":  {strings.Repeat("1", 65), "1.0 beta", "1.0\xff", "vérsion"},
		"X-Agent-Instance": {"x", "a.b.c", "a.0.c", "a.-1.c", "a.1.", ".1.c", "a.1.c.d", "a b.1.c", "a.1." + strings.Repeat("c", 65), "a.99999999999999999999.c"},
	} {
		for _, value := range values {
			got := c.send(node, "POST", c.agents+"/agent/v1/heartbeat", beat, http.Header{name: {value}})
			if got.refused(t, name+" "+value, api.Invalid); !strings.Contains(string(got.body), name) {
				t.Errorf("%s %q: the answer does not name it: %s", name, value, got.body)
			}
		}
	}
	for name, value := range map[string]string{
		"X-Protocol": "", "X-Agent-Version": "1.2.3-rc.1+build.5", "X-Agent-Instance": "e-1.12.r_2", "X-Forwarded-Client-Cert": "Subject=CN=evil",
	} {
		if got := c.send(node, "POST", c.agents+"/agent/v1/heartbeat", beat, http.Header{name: {value}}); got.StatusCode != 200 {
			t.Errorf("%s %q: %d, %s", name, value, got.StatusCode, got.body)
		}
	}
	// Only the connection says who calls.
	nobody := c.client(true, nil)
	for _, name := range []string{"X-Forwarded-Client-Cert", "X-Ssl-Cert", "Client-Cert"} {
		header := http.Header{name: {":" + "MIIB" + ":"}}
		c.send(nobody, "POST", c.agents+"/agent/v1/heartbeat", beat, header).refused(t, name, api.CertificateMissing)
	}
}

// A connection outlives its certificate: each request is judged by itself.
func TestCertificateEndsOnALiveConnection(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	c := run(t, Config{Clock: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	_, certificate := c.join("web")
	node := c.client(true, certificate)
	heartbeat := func() reply { return c.send(node, "POST", c.agents+"/agent/v1/heartbeat", beat, nil) }
	renew := func() reply { return c.send(node, "POST", c.agents+"/agent/v1/renew", `{"csr": "x"}`, nil) }
	if got := heartbeat(); got.StatusCode != 200 {
		t.Fatalf("at first: %d, %s", got.StatusCode, got.body)
	}
	skew.Store(int64(api.CertificateLife + time.Minute))
	heartbeat().refused(t, "after its end", api.CertificateExpired)
	renew().refused(t, "renew within the grace gets to the call", api.CSRInvalid)
	skew.Store(int64(api.CertificateLife + api.RenewGrace + time.Minute))
	renew().refused(t, "renew after the grace", api.CertificateExpired)
	skew.Store(-int64(time.Hour))
	heartbeat().refused(t, "before its beginning", api.ClockSkew)
	skew.Store(0)
	if got := heartbeat(); got.StatusCode != 200 {
		t.Errorf("at last: %d, %s", got.StatusCode, got.body)
	}
}
