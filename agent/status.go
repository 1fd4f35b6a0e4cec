package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
)

// statusFile is what the running agent says to whoever is on the machine. It is
// no state: it is written without waiting for the disk, and lost with no harm.
const statusFile = "status.json"

// Status is who a node is and how its agent gets on.
type Status struct {
	NodeID           string    `json:"node_id"`
	Name             string    `json:"name"`
	Server           string    `json:"server"`
	CertificateUntil time.Time `json:"certificate_until"`
	Agent            string    `json:"agent"` // running, stopped, revoked
	PID              int       `json:"pid,omitempty"`
	// The running agent's own words, absent where none runs.
	LastAnswerAt *time.Time `json:"last_answer_at,omitempty"` // of a heartbeat
	Rung         string     `json:"rung,omitempty"`           // how it is woken
	LastFailure  string     `json:"last_failure,omitempty"`   // since the last answer
}

// ReadStatus looks into the state folder, of a running agent or not. The error
// is ErrNotJoined where there is no identity.
func ReadStatus(cfg Config) (s Status, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return s, err
	}
	if _, err := os.Stat(cfg.State); errors.Is(err, fs.ErrNotExist) {
		return s, ErrNotJoined
	}
	folder := state.Look(cfg.State, cfg.Clock, cfg.Log)
	id, err := folder.Identity()
	if err != nil {
		return s, err
	}
	if id == nil {
		return s, ErrNotJoined
	}
	if text, err := os.ReadFile(folder.Path(statusFile)); err == nil {
		if err := json.Unmarshal(text, &s); err != nil {
			cfg.Log.Warn("the running agent's status cannot be read", "err", err)
		}
	}
	revoked, err := folder.Revoked()
	switch {
	case err != nil:
		return s, err
	case revoked.Ends(id):
		s = Status{Agent: "revoked"}
	case !alive(s.PID):
		s = Status{Agent: "stopped", LastAnswerAt: s.LastAnswerAt, LastFailure: s.LastFailure}
	default:
		s.Agent = "running"
	}
	s.NodeID, s.Name, s.Server, s.CertificateUntil = id.NodeID, id.Name, id.Server, id.ValidUntil()
	return s, nil
}

// tellEvery is how old the status file may be while nothing but time goes on.
const tellEvery = time.Minute

// tell writes the status file after a heartbeat was answered, or something
// failed.
func (a *Agent) tell(failure error) {
	next, changed := a.nextStatus(failure)
	if !changed {
		return
	}
	text, err := json.Marshal(next)
	if err == nil {
		err = replace(a.folder.Path(statusFile), text)
	}
	if err != nil {
		a.cfg.Log.Debug("status not written", "err", err)
	}
}

// nextStatus says whether there is something to tell, and takes it for told.
func (a *Agent) nextStatus(failure error) (next Status, changed bool) {
	now := a.link.Now().UTC()
	a.mu.Lock()
	defer a.mu.Unlock()
	next = Status{PID: os.Getpid(), Rung: a.noticed.wake.Rung, LastAnswerAt: &now}
	if failure != nil {
		next.LastAnswerAt, next.LastFailure = a.status.LastAnswerAt, inWords(failure)
	}
	old := a.status
	same := old.Rung == next.Rung && old.LastFailure == next.LastFailure
	if same && (next.LastAnswerAt == old.LastAnswerAt || old.LastAnswerAt != nil && now.Sub(*old.LastAnswerAt).Abs() < tellEvery) {
		return next, false
	}
	a.status = next
	return next, true
}

func inWords(err error) string {
	if problem, ok := errors.AsType[*api.Error](err); ok {
		return fmt.Sprintf("%s (%s)", problem.Detail, problem.Code)
	}
	return err.Error()
}

func replace(path string, text []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".tmp-status-") // several loops may tell at once
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
