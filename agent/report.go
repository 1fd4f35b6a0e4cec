package agent

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/api"
)

const (
	maxEvents   = 100 // events that wait to be reported; older ones give way
	maxReported = 100 // deployments in one report: with the events it stays below api.MaxBody
)

// event keeps something noticed for the next report.
func (a *Agent) event(kind, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := api.EventReport{Kind: kind, Message: api.Cut(message, api.MaxMessage), At: a.cfg.Clock().UTC()}
	a.noticed.events = append(a.noticed.events, e)
	if extra := len(a.noticed.events) - maxEvents; extra > 0 {
		a.noticed.events = a.noticed.events[extra:]
	}
	a.report.raise()
}

// observe looks at what really runs and reports what the server does not know.
// An engine that does not answer is silence, not "nothing runs".
func (a *Agent) observe(ctx context.Context) (time.Duration, error) {
	looking, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a.noticeRuntimes(a.apps.Runtimes(looking))
	seen, silent := a.apps.Observe(looking)
	for runtime, err := range silent {
		a.cfg.Log.Debug("instances not observed", "runtime", runtime, "err", err)
	}
	news := a.news(seen, silent)
	report := api.Report{
		Events:      a.takeEvents(),
		Deployments: news[:min(len(news), maxReported)], // the next look tells the rest
	}
	if len(report.Events) == 0 && len(report.Deployments) == 0 {
		return a.cfg.Pace.Observe, nil
	}
	_, err := link.Call(ctx, a.link, api.PostReport, report, 0)
	if problem, ours := errors.AsType[*api.Error](err); ours && problem.Next() == api.ThenGiveUp {
		// Again it would be refused again. The next hello says what is ours.
		a.cfg.Log.Error("the control plane did not take a report", "err", err)
		a.askWhatIsActive()
		return a.cfg.Pace.Observe, nil
	}
	if err != nil {
		a.giveBack(report.Events)
		return 0, err
	}
	a.told(report.Deployments)
	return a.cfg.Pace.Observe, nil
}

func (a *Agent) noticeRuntimes(now map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(now, a.noticed.runtimes) {
		a.noticed.runtimes, a.noticed.helloDue = now, true
		a.beatNow.raise()
	}
}

// news is what the server believes and is not so, and what it has not been
// told. While a command is at work, what it changes is its result's to tell.
func (a *Agent) news(seen []api.DeploymentReport, silent map[api.Runtime]error) (news []api.DeploymentReport) {
	if unsent, err := a.journal.In(journal.Finished); err != nil || len(unsent) > 0 || !a.dispatcher.Idle() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	here := map[string]bool{}
	for _, r := range seen {
		here[r.DeploymentID] = true
		if old, ok := a.noticed.reported[r.DeploymentID]; a.noticed.active[r.DeploymentID] && (!ok || !reflect.DeepEqual(old, r)) {
			news = append(news, r)
		}
	}
	for id := range a.noticed.active {
		before := a.noticed.reported[id].Instance
		mayHide := len(silent) > 0 && (before == nil || silent[before.Runtime] != nil)
		if !here[id] && !mayHide {
			news = append(news, api.DeploymentReport{
				DeploymentID: id, State: api.DeploymentRemoved, Message: "its instance is not on the node any more; nobody removed it through Beckon",
			})
		}
	}
	return news
}

func (a *Agent) told(deployments []api.DeploymentReport) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range deployments {
		if a.noticed.reported == nil {
			a.noticed.reported = map[string]api.DeploymentReport{}
		}
		a.noticed.reported[r.DeploymentID] = r
		if r.State == api.DeploymentRemoved {
			delete(a.noticed.active, r.DeploymentID)
			delete(a.noticed.reported, r.DeploymentID)
		}
	}
}

func (a *Agent) takeEvents() []api.EventReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	events := a.noticed.events
	a.noticed.events = nil
	return events
}

func (a *Agent) giveBack(events []api.EventReport) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := append(events, a.noticed.events...)
	a.noticed.events = all[max(len(all)-maxEvents, 0):]
}
