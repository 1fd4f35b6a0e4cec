package agent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/agent/internal/probe"
	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// heartbeat says that the node is alive, and first renews its certificate when
// that is due by the wall clock: no timer of half a day would live through a
// suspend.
func (a *Agent) heartbeat(ctx context.Context) (pause time.Duration, err error) {
	if !a.link.Now().Before(a.current().RenewAt(api.Backdate)) {
		if err := a.renew(ctx); err != nil {
			a.cfg.Log.Warn("certificate not renewed; trying again with the next heartbeat", "valid_until", a.current().ValidUntil(), "err", err)
		}
	}
	req, err := a.beat()
	if err != nil {
		return 0, err
	}
	sent := a.cfg.Clock()
	res, err := link.Call(ctx, a.link, api.Heartbeat, req, 0)
	if errors.Is(err, api.CertificateExpired) {
		// Our clock may be behind, so that it did not look due.
		if err := a.renew(ctx); err != nil {
			return 0, err
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	a.link.Learn(res.ServerTime, sent)
	a.settle()
	a.tell(nil)
	return a.answered(req, res)
}

// beat is the next heartbeat.
func (a *Agent) beat() (api.HeartbeatRequest, error) {
	highest, err := a.journal.HighestSeq()
	if err != nil {
		return api.HeartbeatRequest{}, err
	}
	unsent, err := a.journal.In(journal.Finished)
	if err != nil {
		return api.HeartbeatRequest{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noticed.beats++
	req := a.capacity
	wake := a.noticed.wake
	req.N, req.Self, req.Wake = a.noticed.beats, probe.Self(), &wake
	req.Applied = &api.Applied{Commands: highest}
	for _, e := range unsent[:min(len(unsent), 100)] {
		req.UnackedResults = append(req.UnackedResults, e.ID)
	}
	if a.noticed.helloDue {
		req.Hello = probe.Hello()
		req.Hello.Tier, req.Hello.Runtimes = a.identity.Tier, a.noticed.runtimes
	}
	return req, nil
}

// answered takes in what the server says. Where it has no hello of this
// process, the next heartbeat goes out at once.
func (a *Agent) answered(req api.HeartbeatRequest, res api.HeartbeatResponse) (time.Duration, error) {
	for _, warning := range res.Warnings {
		a.cfg.Log.Warn("the control plane ignored a part of the heartbeat", "warning", warning)
	}
	wanted, err := a.journal.Want(res.ResultsWanted)
	if err != nil {
		return 0, err
	}
	if wanted {
		a.results.raise()
	}
	a.notice(res.Cursors)
	a.mu.Lock()
	defer a.mu.Unlock()
	if req.Hello != nil {
		a.noticed.helloDue = false
		a.noticed.active = map[string]bool{}
		for _, id := range res.Active {
			a.noticed.active[id] = true
		}
		maps.DeleteFunc(a.noticed.reported, func(id string, _ api.DeploymentReport) bool { return !a.noticed.active[id] })
		a.report.raise()
	}
	if res.HelloWanted && req.Hello == nil {
		a.noticed.helloDue = true
		return 0, nil
	}
	return max(time.Duration(res.NextS)*time.Second, time.Second), nil
}

// notice compares cursors with what is known here.
func (a *Agent) notice(c api.Cursors) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.Commands != nil && *c.Commands != a.noticed.fetched {
		a.fetch.raise()
	}
}

// renew gets a certificate for a new key. The old generation stays until the
// new one has worked.
func (a *Agent) renew(ctx context.Context) error {
	key, err := state.NewKey()
	if err != nil {
		return err
	}
	csr, err := key.CSR()
	if err != nil {
		return err
	}
	res, err := link.Call(ctx, a.link, api.Renew, api.RenewRequest{CSR: csr}, 0)
	if err != nil {
		return err
	}
	next, err := a.current().WithCertificate(key, res.Certificate)
	if err != nil {
		return err
	}
	pin, err := next.Pin()
	if err != nil {
		return err
	}
	if err := a.folder.Keep(next); err != nil {
		return err
	}
	a.mu.Lock()
	a.identity, a.noticed.unsettled = next, true
	a.mu.Unlock()
	pair := next.TLS()
	a.link.Use(&pair, pin)
	a.cfg.Log.Info("certificate renewed", "valid_until", next.ValidUntil())
	return nil
}

// settle drops the older generations once the newest has worked.
func (a *Agent) settle() {
	a.mu.Lock()
	due := a.noticed.unsettled
	a.noticed.unsettled = false
	a.mu.Unlock()
	if !due {
		return
	}
	if err := a.folder.Settle(); err != nil {
		a.cfg.Log.Warn("old identity not removed", "err", err)
	}
}

func (a *Agent) current() *state.Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.identity
}

func (a *Agent) signingKeys() seal.Keys {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys
}
