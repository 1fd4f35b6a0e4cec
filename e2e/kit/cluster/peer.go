package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
)

// Peer is a node whose agent is the test itself: it speaks the protocol with a
// real certificate, over a connection of its own.
type Peer struct {
	ID string

	client    *client.Client
	transport *http.Transport
}

// JoinPeer joins with a token. wrap, where it is not nil, sees each request.
func JoinPeer(ctx context.Context, token api.CreatedJoinToken, wrap func(http.RoundTripper) http.RoundTripper) (*Peer, error) {
	pin, err := seal.ParsePin(token.CASHA256)
	if err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make CSR: %w", err)
	}
	stranger := newPeer(token.URL, client.PinnedTLS(time.Now, pin), wrap)
	defer stranger.Close()
	res, err := client.Call(ctx, stranger.client, api.Join, api.JoinRequest{
		Token: token.Token, CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
	})
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	block, _ := pem.Decode([]byte(res.Certificate))
	if block == nil {
		return nil, fmt.Errorf("the certificate is not PEM: %q", res.Certificate)
	}
	config := client.PinnedTLS(time.Now, pin)
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: key}}
	p := newPeer(token.URL, config, wrap)
	p.ID = res.NodeID
	return p, nil
}

func newPeer(url string, config *tls.Config, wrap func(http.RoundTripper) http.RoundTripper) *Peer {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	var way http.RoundTripper = transport
	if wrap != nil {
		way = wrap(way)
	}
	header := http.Header{}
	header.Set(api.HeaderProtocol, strconv.Itoa(api.Protocol))
	header.Set(api.HeaderAgentVersion, "0.0.0-test")
	header.Set(api.HeaderAgentInstance, api.Instance{Epoch: rand.Text(), Starts: 1, Random: rand.Text()}.String())
	return &Peer{client: client.New(url, way, header), transport: transport}
}

// Ask makes one call of an agent.
func Ask[Req, Res any](ctx context.Context, p *Peer, e api.Endpoint[Req, Res], req Req) (Res, error) {
	return client.Call(ctx, p.client, e, req)
}

// Close ends the connections.
func (p *Peer) Close() { p.transport.CloseIdleConnections() }
