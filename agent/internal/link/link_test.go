package link

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
)

// Pauses grow to half a minute and no further, and no two agents have the same.
func TestBackoff(t *testing.T) {
	for failures, most := range map[int]time.Duration{
		1: 2 * time.Second, 2: 4 * time.Second, 3: 8 * time.Second, 4: 16 * time.Second, 5: 30 * time.Second, 100: 30 * time.Second, 1 << 40: 30 * time.Second,
	} {
		least, longest, sum := time.Hour, time.Duration(0), time.Duration(0)
		const tries = 2000
		for range tries {
			pause := Backoff(failures)
			least, longest, sum = min(least, pause), max(longest, pause), sum+pause
		}
		if least < time.Second || longest >= most {
			t.Errorf("after %d failures: %v to %v, want 1s to below %v", failures, least, longest, most)
		}
		// Spread evenly: the mean is in the middle, and both ends are reached.
		middle, width := (most+time.Second)/2, most-time.Second
		if (sum/tries-middle).Abs() > width/20 || least > time.Second+width/50 || longest < most-width/50 {
			t.Errorf("after %d failures: %v to %v, mean %v: not spread evenly", failures, least, longest, sum/tries)
		}
	}
}

// What the error asks for comes first; jitter is on top of it.
func TestPause(t *testing.T) {
	unavailable := func(after time.Duration) error {
		e := api.Errorf(api.Unavailable, "later")
		e.RetryAfter = after
		return fmt.Errorf("beat: %w", e)
	}
	for name, c := range map[string]struct {
		err         error
		least, most time.Duration
	}{
		"network":               {context.DeadlineExceeded, time.Second, 2 * time.Second},
		"weather":               {&client.Weather{Status: 502}, time.Second, 2 * time.Second},
		"weather that says":     {&client.Weather{Status: 503, RetryAfter: 2 * time.Minute}, 2 * time.Minute, 2*time.Minute + 2*time.Second},
		"weather for a day":     {&client.Weather{Status: 503, RetryAfter: 24 * time.Hour}, 5 * time.Minute, 5*time.Minute + 2*time.Second},
		"unavailable":           {unavailable(0), time.Second, 2 * time.Second},
		"unavailable that says": {unavailable(time.Minute), time.Minute, time.Minute + 2*time.Second},
		"to be upgraded":        {api.Errorf(api.UpgradeRequired, "no"), 5 * time.Minute, 5 * time.Minute},
		"not known":             {errors.Join(api.Errorf(api.NodeUnknown, "no")), 5 * time.Minute, 5 * time.Minute},
	} {
		for range 200 {
			if pause := Pause(c.err, 1); pause < c.least || pause > c.most {
				t.Errorf("%s: %v, want %v to %v", name, pause, c.least, c.most)
			}
		}
	}
}
