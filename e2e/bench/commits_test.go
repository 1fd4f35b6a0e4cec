package bench

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/schema"
	_ "modernc.org/sqlite"
)

// pragmas are those of the server.
const pragmas = "?_dqs=0&_pragma=busy_timeout(10000)&_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
	"&_pragma=foreign_keys(1)&_pragma=wal_autocheckpoint(2000)&_pragma=journal_size_limit(67108864)"

// steps are the rows that a command writes on its way, a commit each. $1 is
// the command, $2 the node, $3 the time, $4 the id of the event.
var steps = [][]string{
	{
		`UPDATE nodes SET command_count = command_count + 1, command_seq = command_seq + 1 WHERE id = $2`,
		`INSERT INTO commands (id, node_id, seq, kind, payload, app_id, state, created_at, expires_at, start_by)
			SELECT $1, id, command_seq, 'stop', '{"app_id": "app_bench", "app": "bench"}', 'app_bench', 'queued', $3, $3 + 900000, 0 FROM nodes WHERE id = $2`,
		insertEvent + `'command_queued', $2, 'app_bench', $1, 'stop')`,
	},
	{
		`UPDATE commands SET state = 'delivered', delivered_at = $3 WHERE id = $1 AND state = 'queued'`,
		insertEvent + `'command_delivered', $2, 'app_bench', $1, '')`,
	},
	{
		`UPDATE commands SET state = 'acked', acked_at = $3, acked_by = 'bench.1.one' WHERE id = $1 AND state = 'delivered'`,
		insertEvent + `'command_acked', $2, 'app_bench', $1, '')`,
	},
	{
		`UPDATE commands SET state = 'succeeded', ended_at = $3, result = '{"status":"succeeded","output":{"deployment_ids":[]},` +
			`"started_at":"2026-11-30T12:00:00.123456789Z","finished_at":"2026-11-30T12:00:00.123456789Z","attempt":1}' WHERE id = $1 AND state = 'acked'`,
		insertEvent + `'command_succeeded', $2, 'app_bench', $1, '')`,
	},
}

const insertEvent = `INSERT INTO events (id, at, kind, node_id, app_id, subject, message) VALUES ($4, $3, `

// commits is a database in which commands are written and nothing else is
// done. One goroutine writes; whatever came meanwhile shares its next commit.
type commits struct {
	db    *sql.DB
	ready [][]*sql.Stmt // of each step
	queue chan step
	ids   atomic.Int64
}

// step is one commit of one caller.
type step struct {
	n             int
	command, node string
	done          chan error
}

func openCommits(b *testing.B) *commits {
	b.Helper()
	path := (&url.URL{Path: filepath.Join(b.TempDir(), "limit.db")}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	c := &commits{db: db, queue: make(chan step, asking)}
	if err := c.prepare(); err != nil {
		b.Fatalf("prepare the limit's database: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.write()
	}()
	b.Cleanup(func() {
		close(c.queue)
		<-ended
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}

// prepare makes the server's schema and a node for each caller.
func (c *commits) prepare() error {
	files, err := fs.Glob(schema.Files, "sql/*.sql")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := schema.Files.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := c.db.Exec(string(text)); err != nil {
			return fmt.Errorf("run %s: %w", file, err)
		}
	}
	for i := range asking {
		_, err := c.db.Exec(`INSERT INTO nodes (id, name, status, labels, created_at) VALUES ($1, $1, 'active', '{}', 0)`, nodeName(i))
		if err != nil {
			return fmt.Errorf("make node: %w", err)
		}
	}
	for _, statements := range steps {
		var ready []*sql.Stmt
		for _, text := range statements {
			s, err := c.db.Prepare(text)
			if err != nil {
				return fmt.Errorf("prepare %q: %w", text, err)
			}
			ready = append(ready, s)
		}
		c.ready = append(c.ready, ready)
	}
	return nil
}

// live takes one command through its life.
func (c *commits) live(_ context.Context, i int) error {
	s := step{command: c.id("cmd"), node: nodeName(i), done: make(chan error, 1)}
	for s.n = range steps {
		c.queue <- s
		if err := <-s.done; err != nil {
			return err
		}
	}
	return nil
}

func nodeName(i int) string { return "node_" + strconv.Itoa(i) }

// id is as long as the server's, and sorts like those.
func (c *commits) id(prefix string) string {
	n := c.ids.Add(1)
	return fmt.Sprintf("%s_019ad2f0-%04x-7%03x-8%03x-%012x", prefix, n>>16&0xffff, n>>4&0xfff, n&0xfff, n)
}

func (c *commits) write() {
	for first := range c.queue {
		group := []step{first}
		for len(group) < asking && len(c.queue) > 0 {
			group = append(group, <-c.queue)
		}
		err := c.commit(group)
		for _, s := range group {
			s.done <- err
		}
	}
}

func (c *commits) commit(group []step) error {
	tx, err := c.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range group {
		for _, statement := range c.ready[s.n] {
			_, err := tx.Stmt(statement).Exec(s.command, s.node, time.Now().UnixMilli(), c.id("evt"))
			if err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}
