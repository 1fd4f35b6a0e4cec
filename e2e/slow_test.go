package e2e

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// Who announces a body and never sends it is let go, whatever the answer is:
// with no credentials, at a path that is not there, where no body belongs.
func TestBodyThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		for _, line := range []string{"POST /api/v1/commands", "GET /healthz", "DELETE /api/v1/apps/web", "POST /nowhere", "PUT /api/v1/files"} {
			conn, err := w.operators.Dial(t.Context(), "tcp", "server:80")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if _, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: server\r\nContent-Length: 10\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil || time.Since(start) > time.Minute {
				t.Errorf("%s: let go after %v, %v", line, time.Since(start), err)
			}
			conn.Close()
		}
	})
}
