package wait_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

func TestUntil(t *testing.T) {
	no := errors.New("no")
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		err := wait.Until(time.Minute, func() error {
			if looks++; time.Since(began) < 10*time.Second {
				return no
			}
			return nil
		})
		if took := time.Since(began); err != nil || took > 11*time.Second || looks > 40 {
			t.Errorf("%v after %v and %d looks", err, took, looks)
		}
		began = time.Now()
		if err := wait.Until(time.Minute, func() error { return no }); !errors.Is(err, no) || time.Since(began) != time.Minute {
			t.Errorf("in vain: %v after %v", err, time.Since(began))
		}
	})
}
