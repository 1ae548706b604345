package watcher

import (
	"context"
	"sync"
	"time"

	"fairway/translator/model"
)

// Lane says how long a change may wait for company.
type Lane int

// Config changes are gathered, because one new Ingress usually comes with more
// objects. Endpoints changes never wait: they are cheap, and traffic may
// already be failing.
const (
	Config Lane = iota
	Endpoints
)

// Queue gathers dirty keys in two lanes for one consumer. Its size is bounded
// by the number of objects, since a key is held once however often it changed.
type Queue struct {
	quiet, limit time.Duration
	wake         chan struct{} // capacity 1: something changed that Take must look at

	mu        sync.Mutex
	synced    bool
	syncedAt  time.Time
	started   bool // the first Take has returned
	endpoints pending
	config    pending
	touched   time.Time // when the config lane last got a key
	due       time.Time // when the config lane may be taken
}

// pending is one lane: its keys and the time of the oldest event among them.
type pending struct {
	refs  map[model.Ref]struct{}
	since time.Time
}

// NewQueue returns a Queue whose config lane hands out the first change after a
// quiet time at once, and gathers what follows until nothing came for quiet, or
// the oldest of it has waited for limit.
func NewQueue(quiet, limit time.Duration) *Queue {
	return &Queue{quiet: quiet, limit: limit, wake: make(chan struct{}, 1)}
}

// Add marks refs as changed. It never blocks.
func (q *Queue) Add(lane Lane, refs ...model.Ref) {
	if len(refs) == 0 {
		return
	}
	now := time.Now()
	q.mu.Lock()
	if lane == Endpoints {
		q.endpoints.add(now, refs)
	} else {
		q.schedule(now)
		q.config.add(now, refs)
	}
	q.mu.Unlock()
	q.signal()
}

// schedule moves the config lane's due time for a change at now.
// The caller holds q.mu and has not added the change yet.
func (q *Queue) schedule(now time.Time) {
	idle := q.touched.IsZero() || now.Sub(q.touched) >= q.quiet
	q.touched = now
	switch {
	case len(q.config.refs) == 0 && idle:
		q.due = now
	case len(q.config.refs) == 0:
		q.due = now.Add(min(q.quiet, q.limit))
	case q.due.After(now):
		q.due = earlier(now.Add(q.quiet), q.config.since.Add(q.limit))
	}
}

// Synced says that the source is complete: from here on Take returns.
func (q *Queue) Synced() {
	q.mu.Lock()
	if !q.synced {
		q.synced, q.syncedAt = true, time.Now()
	}
	q.mu.Unlock()
	q.signal()
}

// Take blocks until the source is complete and something is dirty, and returns
// it with the time of its oldest event. The first Take after Synced returns
// everything, even if that is nothing. While the config lane is still being
// gathered, endpoints are returned alone. It returns ctx's error when ctx ends.
func (q *Queue) Take(ctx context.Context) (model.Dirty, time.Time, error) {
	for {
		if err := ctx.Err(); err != nil {
			return model.Dirty{}, time.Time{}, err
		}
		d, since, wait, ok := q.take(time.Now())
		if ok {
			return d, since, nil
		}
		if err := q.sleep(ctx, wait); err != nil {
			return model.Dirty{}, time.Time{}, err
		}
	}
}

// take returns what may be taken now, or how long to wait for the config lane
// (zero: until the next Add or Synced).
func (q *Queue) take(now time.Time) (d model.Dirty, since time.Time, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.synced {
		return d, since, 0, false
	}
	first := !q.started
	gathering := len(q.config.refs) > 0 && now.Before(q.due) && !first
	if !gathering {
		d.Config, since = q.config.take()
	}
	var oldest time.Time
	d.Endpoints, oldest = q.endpoints.take()
	since = earlier(since, oldest)
	if d.Empty() && !first {
		if gathering {
			wait = q.due.Sub(now)
		}
		return d, since, wait, false
	}
	if since.IsZero() {
		since = q.syncedAt
	}
	q.started = true
	return d, since, 0, true
}

// sleep waits for a signal, for d to pass (zero: for ever), or for ctx to end.
func (q *Queue) sleep(ctx context.Context, d time.Duration) error {
	var expired <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-q.wake:
	case <-expired:
	}
	return nil
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (p *pending) add(now time.Time, refs []model.Ref) {
	if p.refs == nil {
		p.refs, p.since = make(map[model.Ref]struct{}, len(refs)), now
	}
	for _, r := range refs {
		p.refs[r] = struct{}{}
	}
}

func (p *pending) take() (map[model.Ref]struct{}, time.Time) {
	taken := *p
	*p = pending{}
	return taken.refs, taken.since
}

// earlier returns the earlier of two times; a zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
