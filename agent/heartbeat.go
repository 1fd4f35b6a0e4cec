package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/agent/internal/probe"
	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// heartbeat says that the node is alive. After the first answer, and after the
// first one that follows failures, it goes on at any part of the pace: a fleet
// that was woken together does not beat together. A server that was away may
// be a new one, which knows no hello.
func (a *Agent) heartbeat(ctx context.Context) (pause time.Duration, err error) {
	pause, err = a.beat(ctx)
	a.silent.Store(err != nil)
	switch {
	case err != nil:
		a.offBeat = true
		a.askWhatIsActive()
	case pause > 0:
		pause = a.rhythm(pause)
	}
	return pause, err
}

// rhythm is how long it is to the next beat. One that came in between, because
// there was something to say, does not move it.
func (a *Agent) rhythm(pace time.Duration) time.Duration {
	now := time.Now()
	switch {
	case a.offBeat:
		a.offBeat, a.beatAt = false, now.Add(rand.N(pace))
	case !now.Before(a.beatAt), a.beatAt.Sub(now) > pace:
		a.beatAt = now.Add(pace)
	}
	return a.beatAt.Sub(now)
}

// beat first renews the certificate when that is due by the wall clock: no timer
// of half a day would live through a suspend.
func (a *Agent) beat(ctx context.Context) (pause time.Duration, err error) {
	a.renewIfDue(ctx)
	req, err := a.next()
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

// renewIfDue leaves a failure for a later heartbeat: there is half a day left.
func (a *Agent) renewIfDue(ctx context.Context) {
	if a.link.Now().Before(a.current().RenewAt(api.Backdate)) || time.Now().Before(a.renewAgain) {
		return
	}
	err := a.renew(ctx)
	if err == nil || ctx.Err() != nil {
		a.vainly = 0
		return
	}
	a.vainly++
	pause := link.Pause(err, a.vainly)
	a.renewAgain = time.Now().Add(pause)
	if a.vainly == 1 || a.vainly%10 == 0 {
		a.cfg.Log.Warn("certificate not renewed; trying again", "failures", a.vainly, "next_try_in", pause.Round(time.Second).String(),
			"valid_until", a.current().ValidUntil(), "err", err)
	}
}

// next is the next heartbeat.
func (a *Agent) next() (api.HeartbeatRequest, error) {
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
	a.recovered.send() // who was refused for the old one need not wait
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
