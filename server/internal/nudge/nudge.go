// Package nudge tells whoever waits that something changed. A lost nudge costs
// latency, never work: every waiter looks at the state itself, and again after
// a while. A topic is the id of what changed: a node, a command, a deployment.
package nudge

import "sync"

// Hub knows who waits for what.
type Hub struct {
	Streams *Streams

	mu     sync.Mutex
	topics map[string]map[*Waiter]struct{}
	closed bool
}

// NewHub returns a hub for whose streams somebody must Run.
func NewHub() *Hub { return &Hub{Streams: NewStreams()} }

// Waiter is somebody who waits.
type Waiter struct {
	hub    *Hub
	topics []string
	c      chan struct{}
}

// C receives after a nudge, once for any number of them, and is closed when the
// hub closes.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Wait begins to wait for nudges of the topics. Look at the state after Wait,
// not before: what comes between is then not missed. Call Done.
func (h *Hub) Wait(topics ...string) *Waiter {
	w := &Waiter{hub: h, topics: topics, c: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(w.c)
		return w
	}
	if h.topics == nil {
		h.topics = map[string]map[*Waiter]struct{}{}
	}
	for _, topic := range topics {
		if h.topics[topic] == nil {
			h.topics[topic] = map[*Waiter]struct{}{}
		}
		h.topics[topic][w] = struct{}{}
	}
	return w
}

// Done ends the wait.
func (w *Waiter) Done() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.hub.forget(w)
}

func (h *Hub) forget(w *Waiter) {
	for _, topic := range w.topics {
		delete(h.topics[topic], w)
		if len(h.topics[topic]) == 0 {
			delete(h.topics, topic)
		}
	}
}

// Nudge wakes whoever waits for the topic, and has the stream of the node that
// it names carry its newest document. It waits for nobody.
func (h *Hub) Nudge(topic string) {
	h.mu.Lock()
	for w := range h.topics[topic] {
		select {
		case w.c <- struct{}{}:
		default: // one is under way
		}
	}
	h.mu.Unlock()
	h.Streams.Nudge(topic)
}

// Revoke wakes whoever waits for the node and ends its stream.
func (h *Hub) Revoke(node string) {
	h.Nudge(node)
	h.Streams.Revoke(node)
}

// Close wakes everybody for good, so that a server can stop.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	seen := map[*Waiter]bool{}
	for _, waiters := range h.topics {
		for w := range waiters {
			if !seen[w] {
				seen[w] = true
				close(w.c)
			}
		}
	}
	h.topics = nil
}
