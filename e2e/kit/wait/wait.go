// Package wait is how a test waits for what another process does: it looks
// again and again, and gives up at a deadline that only a broken program meets.
package wait

import (
	"fmt"
	"testing"
	"time"
)

// Long is enough for whatever takes a moment, on a busy machine too.
const Long = 45 * time.Second

// The pauses between looks, from the first to the longest: what is looked at
// wants the processor, too.
const (
	shortest = 20 * time.Millisecond
	longest  = 500 * time.Millisecond
)

// Until looks until look is content. The error says what look said last.
func Until(within time.Duration, look func() error) error {
	end := time.NewTimer(within)
	defer end.Stop()
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-end.C:
			return fmt.Errorf("not within %v: %w", within, err)
		}
	}
}

// For is Until for a test, which fails when it waited in vain.
func For(t testing.TB, what string, look func() error) {
	t.Helper()
	if err := Until(Long, look); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
