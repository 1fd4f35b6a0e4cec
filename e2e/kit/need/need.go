// Package need is what becomes of a test whose real part is not there.
package need

import (
	"os"
	"testing"
)

// Missing ends a test: it is skipped on a contributor's machine, and fails
// where nothing may be skipped (BECKON_CI=1). fix says what to install.
func Missing(t testing.TB, fix string) {
	t.Helper()
	if os.Getenv("BECKON_CI") == "1" {
		t.Fatal(fix)
	}
	t.Skip(fix)
}
