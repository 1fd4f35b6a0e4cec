package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/agent/internal/probe"
	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
)

// JoinOptions is what a join needs beside the Config.
type JoinOptions struct {
	URL    string // https://host:port of the agent listener
	Token  string
	Pin    string // of the cluster's CA, in any accepted spelling
	Labels api.Labels
}

// Joined is who the node has become.
type Joined struct {
	NodeID, Name, Server string
	Already              bool // it was somebody before; the token was not used
}

// Join makes a node of this machine (PROTOCOL.md section 2), unless it is one
// already: then nothing is asked and the token is not spent. What the server
// refuses is returned at once as an *api.Error, what another server shows as a
// *client.PinError; while there is no answer of the server's, Join tries again
// until ctx ends.
func Join(ctx context.Context, cfg Config, o JoinOptions) (joined Joined, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return joined, err
	}
	folder, err := state.Open(cfg.State, cfg.Clock, cfg.Log)
	if err != nil {
		return joined, err
	}
	revoked, err := folder.Revoked()
	if err != nil {
		return joined, err
	}
	id, err := folder.Identity()
	if id != nil && !revoked.Ends(id) {
		return Joined{id.NodeID, id.Name, id.Server, true}, nil
	}
	if err != nil && !errors.Is(err, state.ErrDamaged) {
		return joined, err
	}
	pin, err := o.check()
	if err != nil {
		return joined, err
	}
	j := joiner{cfg: cfg, JoinOptions: o, pin: pin, folder: folder}
	if revoked != nil {
		j.prior = revoked.NodeID
	}
	if id, err = j.join(ctx); err != nil {
		return joined, err
	}
	return Joined{NodeID: id.NodeID, Name: id.Name, Server: id.Server}, nil
}

// check refuses what could never work before anything is dialled.
func (o JoinOptions) check() (seal.Pin, error) {
	if !strings.HasPrefix(o.URL, "https://") {
		return "", api.Errorf(api.Invalid, "the URL must begin with https://, not %q", o.URL)
	}
	if !strings.HasPrefix(o.Token, "bkn_join_") {
		return "", api.Errorf(api.Invalid, "a join token begins with bkn_join_; make one with `beckon token create`")
	}
	return seal.ParsePin(o.Pin)
}

type joiner struct {
	JoinOptions
	cfg    Config
	pin    seal.Pin
	prior  string
	folder *state.Folder
}

func (j *joiner) join(ctx context.Context) (*state.Identity, error) {
	key, err := j.folder.JoinKey(j.Token)
	if err != nil {
		return nil, err
	}
	csr, err := key.CSR()
	if err != nil {
		return nil, err
	}
	res, err := j.ask(ctx, api.JoinRequest{
		Token: j.Token, CSR: csr, Hostname: probe.Hostname(), MachineID: probe.MachineID(""), PriorNodeID: j.prior,
		OS: runtime.GOOS, Arch: runtime.GOARCH, AgentVersion: j.cfg.Version, Tier: j.cfg.Tier, Labels: j.Labels,
	})
	if err != nil {
		return nil, err
	}
	trusted, doc, err := seal.OpenTrust(res.Trust, res.NodeID, j.pin)
	if err != nil {
		return nil, fmt.Errorf("the answer to the join was refused: %w", err)
	}
	id := &state.Identity{
		NodeID: res.NodeID, Name: res.Name, Server: strings.TrimSuffix(j.URL, "/"), Tier: j.cfg.Tier, Generation: trusted.Generation,
		SigningCertificates: doc.SigningCertificates,
	}
	for _, ca := range trusted.CAs {
		id.CAs = append(id.CAs, seal.EncodeCertificate(ca))
	}
	id.Key, id.Certificate = key.PEM, res.Certificate
	return id, j.folder.Joined(id)
}

// ask posts the join until there is an answer of the server's.
func (j *joiner) ask(ctx context.Context, req api.JoinRequest) (res api.JoinResponse, err error) {
	way := link.New(link.Config{
		Server: strings.TrimSuffix(j.URL, "/"), Version: j.cfg.Version, Clock: j.cfg.Clock, Dial: j.cfg.Dial, Wrap: j.cfg.Wrap,
	}, nil, j.pin)
	defer way.Close()
	for failures := 1; ; failures++ {
		res, err = link.Call(ctx, way, api.Join, req, 0)
		if err == nil || final(err) || ctx.Err() != nil {
			return res, err
		}
		j.cfg.Log.Warn("join not answered; trying again", "url", j.URL, "err", err)
		select {
		case <-ctx.Done():
			return res, ctx.Err()
		case <-time.After(link.Pause(err, failures)):
		}
	}
}

// final reports whether trying the same again would be in vain.
func final(err error) bool {
	if _, ok := errors.AsType[*client.PinError](err); ok || errors.Is(err, http.ErrSchemeMismatch) { // the second speaks plain HTTP
		return true
	}
	problem, ok := errors.AsType[*api.Error](err)
	return ok && problem.Next() != api.ThenRetry
}
