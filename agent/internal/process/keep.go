package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// pause is how long Keep leaves an instance alone whose supervisor was lost.
type pause struct {
	next  time.Time
	delay time.Duration
}

const (
	firstPause   = time.Second
	longestPause = time.Minute
	healthy      = 5 * time.Minute // a life of this length ends a row of failures
	mostInARow   = 5               // failures after which on_failure gives up
)

// Keep starts the instances that should run and have no supervisor, as after
// a restart of the machine, and returns their ids. It is to be called at the
// start of the agent and again and again: one that is lost time after time is
// started at most once a minute.
func (d *Driver) Keep() (started []string, err error) {
	d.reap()
	if err := d.sweepOnce(); err != nil {
		return nil, err
	}
	all, err := d.folders("")
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	var failed error
	for _, at := range all {
		done, err := d.keep(at)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("start instance %s again: %w", at.id(), err))
		}
		if done {
			started = append(started, at.id())
		}
	}
	return started, failed
}

func (d *Driver) sweepOnce() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.swept {
		return nil
	}
	d.swept = true
	return d.sweep()
}

// keep starts one instance if that is wanted, and due.
func (d *Driver) keep(at folder) (started bool, err error) {
	alive, err := at.alive()
	if err != nil {
		return false, err
	}
	w, s, err := at.intent()
	if err != nil {
		return false, err
	}
	if alive || !wanted(w, s) {
		d.rested(at.id(), alive, s)
		return false, nil
	}
	if !d.due(at.id()) {
		return false, nil
	}
	err = d.spawn(at, func(w *wish, s state) bool {
		if alive, err := at.alive(); err != nil || alive || !wanted(*w, s) {
			return false
		}
		w.Run, w.Again, started = rand.Text(), true, true
		return true
	})
	return started && err == nil, err
}

// rested forgets how often an instance was lost, once it is well or not
// wanted any more.
func (d *Driver) rested(id string, alive bool, s state) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !alive || s.Phase == living && s.StartedAt != nil && time.Since(*s.StartedAt) > healthy {
		delete(d.again, id)
	}
}

// due reports whether an instance may be started again, and if so when it may
// be the next time.
func (d *Driver) due(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.again[id]
	if p == nil {
		p = &pause{delay: firstPause}
		d.again[id] = p
	}
	now := time.Now()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(p.delay)
	p.delay = min(2*p.delay, longestPause)
	return true
}
