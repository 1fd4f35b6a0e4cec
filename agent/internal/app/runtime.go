package app

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// runtime is what runs instances. It sees and touches only those of one node
// that this package made. All rules stand above it, and are the same for each.
type runtime interface {
	name() api.Runtime
	version(ctx context.Context) (string, error)

	// instances are those of an app, or of all apps when app is "".
	instances(ctx context.Context, app string) ([]instance, error)
	look(ctx context.Context, id string) (seen instance, found bool, err error)
	// lines are the last that an instance wrote.
	lines(ctx context.Context, id string, most int) ([]string, error)

	// fetch makes sure that all is here that can be had before create.
	fetch(ctx context.Context, p api.DeployPayload) error
	// create makes an instance that is restarted by nobody, and does not start it.
	create(ctx context.Context, p plan) (instance, error)
	// start says taken when it failed because the port is in use.
	start(ctx context.Context, id string) (taken bool, err error)
	stop(ctx context.Context, id string) error
	// remove is content when there is nothing to remove.
	remove(ctx context.Context, id string) error
	setRestart(ctx context.Context, id string, r restart) error
}

// plan is an instance to be made.
type plan struct {
	api.DeployPayload
	publish  string // ADDR:PORT on the node, "" without a port
	replaces string // the deployment that ran before and gets its place back
}

// instance is what a runtime has of a deployment.
type instance struct {
	by runtime

	id, name, image string

	deployment, app, appName string
	revision                 int64
	port                     int
	publish                  string
	window                   time.Duration     // of its observation
	wanted                   api.RestartPolicy // once it is proven
	replaces                 string

	phase     phase
	restart   restart
	restarts  int       // by the runtime, since a start of ours
	startedAt time.Time // zero when it never was
	exit      *exit     // the last; nil when there is none, or nobody knows
	fault     string    // why the runtime could not start it
	held      bool      // stopped on purpose
	lost      bool      // ended with what kept it going: nobody knows how
	unhealthy bool
	notes     []string
}

// phase is where an instance stands.
type phase int

const (
	made    phase = iota // never started
	running              // its process lives
	looping              // exited, and the runtime will start it again
	down                 // exited for good
)

// exit is how an instance ended.
type exit struct {
	code int
	oom  bool // it used more memory than it may
	at   time.Time
}

// restart is the restart policy in force. It doubles as the mark of what must
// outlive the agent: nothing restarts an instance that is not proven yet, and
// one that was stopped on purpose has the policy always, whatever its app
// wants. (A stopped container shows by that alone that it is held: else always
// would have started it again.)
type restart int

const (
	never     restart = iota
	onFailure         // five times in a row
	always            // unless it was stopped on purpose
)

// ofPolicy is the restart an app wants.
func ofPolicy(p api.RestartPolicy) restart {
	switch p {
	case api.RestartNever:
		return never
	case api.RestartOnFailure:
		return onFailure
	}
	return always
}

// proven reports whether the instance is known to have lived through its
// observation. One that is never restarted does not show it.
func (i instance) proven() bool {
	return i.restart == ofPolicy(i.wanted) && i.restart != never
}

// up reports whether the runtime keeps the instance going, well or not.
func (i instance) up() bool { return i.phase == running || i.phase == looping }

// report is the instance as the wire knows it.
func (i instance) report() api.RunningInstance {
	r := api.RunningInstance{
		ID: i.id, Name: i.name, Runtime: i.by.name(), Image: i.image,
		Port: i.port, Publish: i.publish, Restarts: i.restarts, Notes: i.notes,
	}
	if !i.startedAt.IsZero() {
		at := i.startedAt.UTC()
		r.StartedAt = &at
	}
	return r
}

// newestFirst orders by revision; of two of the same, the one started last
// comes first.
func newestFirst(all []instance) {
	slices.SortFunc(all, func(a, b instance) int {
		return cmp.Or(cmp.Compare(b.revision, a.revision), b.startedAt.Compare(a.startedAt))
	})
}
