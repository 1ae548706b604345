package xds

import (
	"context"
	"io"
	"runtime"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

// heavyResources and heavyBytes are the sizes from which work takes one of the
// store's slots for heavy work.
const (
	heavyResources = 1000
	heavyBytes     = 64 << 10
)

// heavySlots is half the processors: the other half stays free for Publish and
// for small changes.
func heavySlots() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// drainCap bounds how long a stream whose client has sent everything waits for
// what was asked for.
const drainCap = 250 * time.Millisecond

// stream joins one gRPC stream, the library's stream server and a session.
//
// The library calls it for every request (watch) and wraps what it sends; its
// own goroutine (run) alone decides responses. Locks are taken in the order
// store.mu (shared), mu.
type stream struct {
	store  *Store
	opened time.Time
	wake   chan struct{}
	empty  chan struct{} // closed when a half-closed stream has been answered

	mu       sync.Mutex
	session  *session
	node     *corev3.Node
	watches  [envoy.NumTypes]watch
	requests []request
	received int // requests handed to the library
	handled  int // requests that came back from it as a watch
	sending  int
	drained  bool

	current *response // being sent; owned by the library's goroutine
}

// watch is the library's open question for one type.
type watch struct {
	open    bool
	reading bool // a request is on its way through the library
	unread  bool // something was sent since the last request that the library accepted
	queued  *response
	put     func(*response) bool // hands a response to the library, never blocks
}

// request is what the library does not get to see of a request.
type request struct {
	key any // the message it came with
	typ envoy.Type
	sub subscription

	taken int // requests that are dealt with when this one is: the library skips some
}

// open starts a stream. It must be closed.
func (s *Store) open(delta, ads, debug bool) *stream {
	st := &stream{
		store:  s,
		opened: time.Now(),
		wake:   make(chan struct{}, 1),
		empty:  make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.session = &session{tables: s.tables, order: &conditions, delta: delta, ads: ads, debug: debug, gateCap: s.opts.GateCap}
	s.streams[st] = struct{}{}
	if !debug {
		s.metrics.streams.WithLabelValues(protocolName(delta)).Inc()
	}
	return st
}

// close takes the stream out of the store and tells those who wait for its
// answers that there will be none.
func (st *stream) close() {
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	delete(st.store.streams, st)
	for t := range st.session.types {
		ts := &st.session.types[t]
		for _, r := range ts.flights {
			r.done(time.Time{})
		}
		for _, p := range ts.waits {
			p.answered(time.Time{})
		}
		ts.waits = nil
	}
	if !st.session.debug {
		st.store.metrics.streams.WithLabelValues(protocolName(st.session.delta)).Dec()
	}
}

// with runs f on the session.
func (st *stream) with(f func(*session)) {
	st.store.mu.RLock()
	defer st.store.mu.RUnlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	f(st.session)
}

// signal makes run decide. It never blocks; signals may merge.
func (st *stream) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// run decides responses whenever something happened, until ctx ends.
func (st *stream) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.wake:
		case <-timer.C:
		}
		timer.Reset(time.Hour)
		if retry := st.decide(time.Now()); !retry.IsZero() {
			timer.Reset(time.Until(retry))
		}
	}
}

// decide hands the library every response that may leave now. It returns when
// to try again although nothing happened.
func (st *stream) decide(now time.Time) (retry time.Time) {
	heavy := false
	st.with(func(s *session) {
		if heavy = s.load() > heavyResources; !heavy {
			retry = st.fill(now)
		}
	})
	if !heavy {
		return retry
	}
	st.store.heavy <- struct{}{}
	defer func() { <-st.store.heavy }()
	st.with(func(*session) { retry = st.fill(now) })
	return retry
}

// fill answers the open watches. Types that a request is about, and types that
// come after them and are gated, wait until the request has been handled.
func (st *stream) fill(now time.Time) (retry time.Time) {
	st.session.retry = time.Time{}
	reading := false
	for t := range st.watches {
		w := &st.watches[t]
		reading = reading || w.reading
		gated := st.session.order[adding][t].introduced
		if !w.open || w.queued != nil || w.reading || reading && gated {
			continue
		}
		w.queued = st.session.next(envoy.Type(t), now, st.store.generation)
		if w.queued != nil && !w.put(w.queued) {
			st.takeBack(w)
		}
	}
	st.checkDrained()
	return st.session.retry
}

// takeBack undoes a decision that the library lost.
func (st *stream) takeBack(w *watch) {
	st.session.restoreDropped(w.queued, st.store.generation)
	w.queued = nil
}

// checkDrained ends the wait of halfClose once every request has been handled and
// every answer handed to gRPC. The caller holds the locks.
func (st *stream) checkDrained() {
	if !st.session.halfClosed || st.drained || st.handled < st.received || st.sending > 0 || st.session.waiting() {
		return
	}
	for t := range st.watches {
		if st.watches[t].queued != nil {
			return
		}
	}
	st.drained = true
	close(st.empty)
}

// receive reads from the client until there is a request for the library.
// forward takes a request in and reports whether the library is to see it.
func (st *stream) receive(str grpc.ServerStream, message func() any, forward func(any) bool) (any, error) {
	for {
		m := message()
		if err := str.RecvMsg(m); err != nil {
			if err == io.EOF {
				st.halfClose(str.Context())
			}
			return nil, err
		}
		if forward(m) {
			return m, nil
		}
	}
}

// halfClose waits until everything that was asked for has been handed to gRPC:
// the library ends the stream as soon as the requests end.
func (st *stream) halfClose(ctx context.Context) {
	st.with(func(s *session) { s.halfClosed = true })
	st.signal()
	select {
	case <-st.empty:
	case <-time.After(drainCap):
	case <-ctx.Done():
	}
}

// answer passes the client's answer to an earlier response on.
func (st *stream) answer(t envoy.Type, nonce string, refused bool, text string) {
	var out effects
	settled := uint64(0)
	st.with(func(s *session) {
		s.answer(t, nonce, refused, text, time.Now())
		out, s.out = s.out, effects{}
		settled = st.settled(st.store.generation)
	})
	st.signal()
	if st.session.debug {
		return
	}
	m := st.store.metrics
	m.acks[t].Add(float64(out.acks[t]))
	m.nacks[t].Add(float64(out.nacks[t]))
	for _, n := range out.refusals {
		n.Node = st.node.GetId()
		st.store.log.Warn("envoy refused resources", "type", n.Type, "names", n.Names, "owners", n.Owners, "node", n.Node, "err", n.Message)
		if st.store.opts.OnNack != nil {
			st.store.opts.OnNack(n)
		}
	}
	st.store.settle(settled)
}

// settled returns the generation that this stream has answered, 0 if it is not
// an Envoy that carries traffic. The caller holds the store's lock.
func (st *stream) settled(generation uint64) uint64 {
	if !st.session.complete() {
		return 0
	}
	return st.session.settled(generation)
}

// hold keeps the part of a request that the library does not see until the
// library comes back with the request.
func (st *stream) hold(r request) {
	st.with(func(*session) { st.push(r) })
}

// holdCurrent is hold for SotW: it refuses what answers an older response than
// the last one, which the library would skip or, after an answer, take.
func (st *stream) holdCurrent(r request, nonce string) (current bool) {
	st.with(func(s *session) {
		last := s.types[r.typ].nonce
		current = nonce == last || nonce == "" && !st.watches[r.typ].unread
		if current {
			st.push(r)
		}
	})
	return current
}

// push is called under the stream's lock.
func (st *stream) push(r request) {
	st.requests = append(st.requests, r)
	st.received++
	st.watches[r.typ].reading = true
}

// release returns what was held for a request. Requests that the library
// skipped before it are forgotten.
func (st *stream) release(key any) (request, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for n, r := range st.requests {
		if r.key == key {
			left := copy(st.requests, st.requests[n+1:])
			clear(st.requests[left:])
			st.requests = st.requests[:left]
			r.taken = n + 1
			return r, true
		}
	}
	return request{}, false
}

// watch applies a request that the library accepted and opens a watch for it.
func (st *stream) watch(key any, wildcard bool, put func(*response) bool) (cancel func(), err error) {
	r, ok := st.release(key)
	if !ok {
		return nil, nil // an unknown type: a watch that never fires
	}
	r.sub.wildcard = wildcard
	names := len(r.sub.names) + len(r.sub.subscribe) + len(r.sub.initial)
	if names > heavyResources {
		st.store.heavy <- struct{}{}
		defer func() { <-st.store.heavy }()
	}
	st.subscribe(r)
	st.mu.Lock()
	w := &st.watches[r.typ]
	w.open, w.reading, w.unread, w.put = true, false, false, put
	st.handled += r.taken
	st.mu.Unlock()
	st.signal()
	return func() {
		st.mu.Lock()
		st.watches[r.typ].open = false
		st.mu.Unlock()
	}, nil
}

// subscribe applies a request to the session. Names without an id get one
// first, which needs the exclusive lock; in between a publish may take ids back,
// so it starts again until all names have one.
func (st *stream) subscribe(r request) {
	for {
		var missing []string
		st.with(func(s *session) {
			missing = s.unknownNames(r.typ, r.sub)
			if len(missing) > 0 {
				return
			}
			w := &st.watches[r.typ]
			if w.queued != nil && !s.delta {
				st.takeBack(w) // the library threw it away
			}
			s.subscribe(r.typ, r.sub, st.store.generation)
		})
		if len(missing) == 0 {
			return
		}
		st.store.intern(r.typ, missing)
	}
}

// unknownNames returns the names in a request that have no id.
func (s *session) unknownNames(t envoy.Type, sub subscription) []string {
	var out []string
	check := func(name string) {
		if _, ok := s.tables[t].ids[name]; !ok && name != "*" {
			out = append(out, name)
		}
	}
	for _, name := range sub.names {
		check(name)
	}
	for _, name := range sub.subscribe {
		check(name)
	}
	for name := range sub.initial {
		check(name)
	}
	return out
}

// send encodes the current response and hands it to gRPC. The nonce is known
// before the message leaves, because an answer may be quick.
func (st *stream) send(str grpc.ServerStream, nonce string) error {
	r := st.current
	st.current = nil
	st.with(func(s *session) {
		w := &st.watches[r.typ]
		w.queued, w.unread = nil, true
		if !s.delta {
			w.reading = false // the library skips a request that this overtakes
		}
		s.sent(r, nonce)
		st.sending++
	})
	if !st.session.debug {
		st.store.metrics.pushes[r.typ].Inc()
	}
	err := str.SendMsg(r.encode(st.session.delta, st.session.debug))
	st.mu.Lock()
	st.sending--
	st.mu.Unlock()
	st.signal()
	return err
}
