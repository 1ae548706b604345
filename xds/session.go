package xds

import (
	"time"

	"fairway/envoy"
)

// session is what the server knows about one client stream and decides for it:
// a request goes in, decided responses come out. It is a pure state machine
// without clock, goroutine or gRPC. Invariant: the client has the current
// version of every resource that it subscribed to and that is neither dirty nor
// in flight nor refused.
//
// It is guarded by the stream's lock under the store's shared lock, or by the
// store's exclusive lock alone.
type session struct {
	tables  *tables
	order   *conditionTable
	delta   bool // incremental protocol
	ads     bool // all types share the stream
	debug   bool // a person, not an Envoy: leaves no trace in metrics and reports
	gateCap time.Duration

	types       [envoy.NumTypes]typeState
	known       bitset // Clusters that the client is known to be able to use
	introducing bitset // Clusters sent to a client that does not know them yet
	warming     bitset // of those, the ones for which nothing more is to be sent

	warmingSince time.Time // the oldest of warming

	returning  bool // the client brought Clusters from an earlier stream
	halfClosed bool // the client sends no more requests, so no answers either
	retry      time.Time
	out        effects
}

// effects are what happened to a session, for the caller to pass on.
type effects struct {
	acks, nacks [envoy.NumTypes]int
	refusals    []Nack
}

// typeState is the part of a session that concerns one type.
type typeState struct {
	seen       bool // the client has asked for the type
	returned   bool // it brought a state of the type from an earlier stream (SotW)
	wildcard   bool
	owed       bool   // an answer is due even if it is empty
	subscribed bitset // by name
	dirty      bitset // changed since it was last sent
	asked      bitset // the part of dirty that the client itself waits for
	held       bitset // sent, and not removed since
	refused    map[id]refusal
	flights    []*response // decided and not answered yet, oldest first
	groups     [][]id      // refused together, to be sent again apart
	blocked    [numPhases]time.Time

	shownAt uint64 // generation of the last full state (SotW)

	since uint64         // generation of the oldest change in dirty; 0: none
	waits []*propagation // publishes whose changes are in dirty

	nonce   string // of the last response sent
	version string // of the last response accepted (SotW)
	nack    string // the last refusal
}

// subscription is the part of a request that says what the client wants.
type subscription struct {
	wildcard    bool
	names       []string // SotW: all of them
	subscribe   []string // delta
	unsubscribe []string // delta
	initial     map[string]string
	version     string // SotW: version_info
}

// wants reports whether the client has subscribed to a resource.
func (ts *typeState) wants(i id) bool { return ts.wildcard || ts.subscribed.has(i) }

// mark notes that a resource changed in a generation. It reports whether the
// client is concerned.
func (s *session) mark(t envoy.Type, i id, generation uint64) bool {
	ts := &s.types[t]
	if !ts.seen || !ts.wants(i) {
		return false
	}
	ts.taint(i, generation)
	return true
}

// taint notes that the client does not have the current form of a resource.
func (ts *typeState) taint(i id, generation uint64) {
	ts.dirty.set(i)
	if ts.since == 0 {
		ts.since = generation
	}
}

// ask is taint for what the client itself waits for.
func (ts *typeState) ask(i id, generation uint64) {
	ts.taint(i, generation)
	ts.asked.set(i)
}

// clean forgets the bookkeeping of dirty when nothing is dirty any more.
func (ts *typeState) clean() {
	if !ts.dirty.empty() || len(ts.groups) > 0 {
		return
	}
	ts.since = 0
	for _, p := range ts.waits {
		p.answered(time.Time{})
	}
	ts.waits = nil
}

// subscribe takes in what a request says about the client's interest. Every
// name in it has an id.
func (s *session) subscribe(t envoy.Type, sub subscription, generation uint64) {
	ts := &s.types[t]
	first, wasWildcard := !ts.seen, ts.wildcard
	ts.seen, ts.wildcard = true, sub.wildcard
	if first && len(sub.initial) > 0 {
		s.restore(t, sub.initial)
	}
	if s.delta {
		s.subscribeDelta(t, sub, generation)
	} else {
		s.subscribeSotw(t, sub, first, generation)
	}
	switch {
	case wasWildcard && !ts.wildcard:
		s.leave(t)
	case !wasWildcard && ts.wildcard:
		s.enterWildcard(t, first, sub.initial, generation)
	}
	ts.clean()
}

// restore takes over what the client brought from an earlier stream.
func (s *session) restore(t envoy.Type, initial map[string]string) {
	for name := range initial {
		if i, ok := s.tables[t].ids[name]; ok {
			s.types[t].held.set(i)
			if t == envoy.Cluster {
				s.known.set(i)
			}
		}
	}
	s.returning = s.returning || s.ads && t == envoy.Cluster
}

// enterWildcard makes everything due that the client did not bring in this form.
// It is always answered, even if with nothing, unless the client brought versions:
// then silence says that they are current.
func (s *session) enterWildcard(t envoy.Type, first bool, initial map[string]string, generation uint64) {
	ts, tab := &s.types[t], &s.tables[t]
	ts.owed = ts.owed || !first || len(initial) == 0
	for i := range tab.entries {
		e := &tab.entries[i]
		version, had := initial[e.name]
		if e.item != nil && !(had && version == e.item.version) || e.item == nil && had {
			ts.taint(id(i), generation)
		}
	}
}

// subscribeDelta applies the changes to the set of names. A name that the client
// has already is sent again, as the protocol demands.
func (s *session) subscribeDelta(t envoy.Type, sub subscription, generation uint64) {
	ts, tab := &s.types[t], &s.tables[t]
	for _, name := range sub.subscribe {
		if name == "*" {
			continue
		}
		i := tab.ids[name]
		ts.subscribed.set(i)
		version, had := sub.initial[name]
		if it := tab.entries[i].item; !had || it == nil || it.version != version {
			ts.ask(i, generation)
		}
	}
	for _, name := range sub.unsubscribe {
		i, ok := tab.ids[name]
		if !ok || !ts.subscribed.has(i) {
			continue
		}
		ts.subscribed.unset(i)
		if ts.wildcard {
			ts.ask(i, generation) // the client has to be told whether it still exists
		} else {
			s.forget(t, i)
		}
	}
}

// subscribeSotw compares the names of a request, which are always all, with those
// of the one before. A client that comes back has most of it: that is sent, but
// not as something it waits for.
func (s *session) subscribeSotw(t envoy.Type, sub subscription, first bool, generation uint64) {
	ts, tab := &s.types[t], &s.tables[t]
	var names bitset
	for _, name := range sub.names {
		if name == "*" {
			continue
		}
		i := tab.ids[name]
		names.set(i)
		switch {
		case ts.subscribed.has(i):
		case first && sub.version != "":
			ts.taint(i, generation)
		default:
			ts.ask(i, generation)
		}
	}
	old := ts.subscribed
	ts.subscribed = names
	for i := range old.all() {
		if !ts.wants(i) {
			s.forget(t, i)
		}
	}
	ts.returned = ts.returned || first && sub.version != ""
	ts.owed = ts.owed || first && fullState[t] && len(sub.names) > 0
}

// forget drops what the session knows about a resource that the client left.
func (s *session) forget(t envoy.Type, i id) {
	ts := &s.types[t]
	ts.dirty.unset(i)
	ts.asked.unset(i)
	ts.held.unset(i)
	delete(ts.refused, i)
	if t == envoy.Cluster {
		s.lose(i)
	}
}

// leave forgets what the client does not want any more.
func (s *session) leave(t envoy.Type) {
	ts := &s.types[t]
	var all bitset
	for _, set := range []bitset{ts.dirty, ts.asked, ts.held} {
		all.union(set)
	}
	for i := range all.all() {
		if !ts.wants(i) {
			s.forget(t, i)
		}
	}
}

// lose notes that the client no longer knows a Cluster, whatever is still in
// flight about it.
func (s *session) lose(i id) {
	s.known.unset(i)
	s.introducing.unset(i)
	s.warming.unset(i)
	for _, t := range []envoy.Type{envoy.Cluster, envoy.Endpoint} {
		for _, f := range s.types[t].flights {
			f.introduces.unset(i)
			f.warms.unset(i)
		}
	}
}

// notIntroduced notes that a Cluster that was sent will not come.
func (s *session) notIntroduced(i id) {
	s.introducing.unset(i)
	s.warming.unset(i)
}

// next decides the next response of a type, nil if there is none now.
func (s *session) next(t envoy.Type, now time.Time, generation uint64) *response {
	ts := &s.types[t]
	if !ts.seen || ts.dirty.empty() && !ts.owed && len(ts.groups) == 0 {
		return nil
	}
	if len(ts.groups) > 0 && len(ts.flights) == 0 {
		if items := s.nextGroup(t); len(items) > 0 {
			return s.decide(t, items, nil, now, generation)
		}
	}
	free := s.halfClosed || len(ts.groups) == 0 && len(ts.flights) < s.window(t)
	added, removed, held := s.pick(t, free, now)
	if s.delta && alone[t] && len(added) > 1 {
		added, held = added[:1], true
	}
	empty := ts.owed && free && !held
	if len(added) == 0 && len(removed) == 0 && !empty {
		ts.clean()
		return nil
	}
	return s.decide(t, added, removed, now, generation)
}

// pick chooses from the dirty resources those that may leave now. held reports
// that some may not.
func (s *session) pick(t envoy.Type, free bool, now time.Time) (added []*item, removed []id, held bool) {
	ts := &s.types[t]
	gate := [numPhases]func() bool{}
	for p := range numPhases {
		gate[p] = once(func() bool { return free && s.open(t, p, now) })
	}
	for i := range ts.dirty.all() {
		it := s.tables[t].entries[i].item
		asked := ts.asked.has(i) && len(ts.flights) < maxFlights
		switch {
		case it != nil && ts.refuses(it):
			ts.dirty.unset(i)
			ts.asked.unset(i)
		case it != nil && (asked && s.order[adding][t].free() || gate[adding]()):
			added = append(added, it)
		case it == nil && s.mute(t, i):
			ts.dirty.unset(i)
			ts.asked.unset(i)
			ts.held.unset(i)
		case it == nil && (asked || gate[removing]()):
			removed = append(removed, i)
		default:
			held = true
		}
	}
	return added, removed, held
}

// free reports whether there is nothing to wait for.
func (c condition) free() bool { return !c.introduced && len(c.added) == 0 && len(c.removed) == 0 }

// mute reports whether nothing can be said about a resource that is gone.
func (s *session) mute(t envoy.Type, i id) bool {
	ts := &s.types[t]
	if !ts.asked.has(i) && !ts.held.has(i) {
		return true
	}
	if s.delta || fullState[t] {
		return false
	}
	return !ts.asked.has(i) || t != envoy.Endpoint && t != envoy.Route
}

// once calls f when its result is first needed, and keeps it.
func once(f func() bool) func() bool {
	called, result := false, false
	return func() bool {
		if !called {
			called, result = true, f()
		}
		return result
	}
}

// decide turns resources into a response and takes them for sent.
func (s *session) decide(t envoy.Type, added []*item, removed []id, now time.Time, generation uint64) *response {
	ts, tab := &s.types[t], &s.tables[t]
	r := &response{typ: t, fresh: added, items: added, since: ts.since}
	full := !s.delta && fullState[t]
	for _, it := range added {
		if full {
			r.before = append(r.before, ts.before(it))
		}
		ts.dirty.unset(it.id)
		ts.asked.unset(it.id)
		ts.held.set(it.id)
		s.introduce(r, it, now, generation)
	}
	for _, i := range removed {
		ts.dirty.unset(i)
		ts.asked.unset(i)
		ts.held.unset(i)
		if t == envoy.Cluster {
			s.lose(i)
		}
		r.removed = append(r.removed, removal{i, tab.entries[i].name})
		if !s.delta && t == envoy.Endpoint {
			r.missing = append(r.missing, tab.entries[i].name)
		}
	}
	r.version = sumVersion(tab.sum)
	if full {
		r.items, r.version = s.shown(t)
		ts.shownAt = generation
	}
	if ts.dirty.empty() && len(ts.groups) == 0 {
		r.waits, ts.waits, ts.since = ts.waits, nil, 0
	}
	ts.owed = false
	ts.flights = append(ts.flights, r)
	return r
}

// before returns what the full state is to show in place of an item if the
// client refuses it: the form that the client got before, nothing if there was
// none, or the item itself if that is not known: leaving it out would take away
// what the client has.
func (ts *typeState) before(it *item) *item {
	switch {
	case !ts.held.has(it.id) && !ts.returned:
		return nil
	case it.prev != nil && it.prev.generation <= ts.shownAt:
		return it.prev
	default:
		return it
	}
}

// introduce keeps track of Clusters that are new to the client, and makes the
// load assignment of a Cluster that is sent due after it: Envoy warms the
// Cluster until it comes.
func (s *session) introduce(r *response, it *item, now time.Time, generation uint64) {
	switch r.typ {
	case envoy.Cluster:
		child, ok := s.tables[envoy.Endpoint].ids[it.name]
		if ok {
			s.mark(envoy.Endpoint, child, generation)
		}
		if s.known.has(it.id) {
			return
		}
		r.introduces.set(it.id)
		if ok && s.tables[envoy.Endpoint].entries[child].item != nil {
			s.warming.unset(it.id)
			s.introducing.set(it.id)
		} else {
			s.warm(it.id, now) // it has no assignment to wait for
		}
	case envoy.Endpoint:
		if s.introducing.empty() {
			return
		}
		parent, ok := s.tables[envoy.Cluster].ids[it.name]
		switch {
		case !ok || !s.introducing.has(parent):
		case s.slow(parent):
			r.warms.set(parent)
		default:
			r.introduces.set(parent)
		}
	}
}

// slow reports whether only the acknowledgement of the Cluster itself says that it
// is usable.
func (s *session) slow(cluster id) bool {
	it := s.tables[envoy.Cluster].entries[cluster].item
	return it == nil || it.slow
}

// shown returns the full state of a type as this client is to see it: the
// current resources, the last form of those whose removal has to wait, and for
// a refused one the form before it.
func (s *session) shown(t envoy.Type) ([]*item, string) {
	ts, tab := &s.types[t], &s.tables[t]
	items := make([]*item, 0, tab.live)
	sum := uint64(0)
	for i := range tab.entries {
		it := tab.entries[i].item
		if it == nil && ts.held.has(id(i)) {
			it = tab.entries[i].last
		}
		if it == nil || !ts.wants(id(i)) {
			continue
		}
		if ts.refuses(it) {
			it = ts.refused[id(i)].good
		}
		if it != nil {
			items = append(items, it)
			sum += it.hash
		}
	}
	return items, sumVersion(sum)
}

// sent notes the nonce under which a response leaves.
func (s *session) sent(r *response, nonce string) {
	r.nonce = nonce
	s.types[r.typ].nonce = nonce
}

// restoreDropped takes back a response that was decided but never left.
func (s *session) restoreDropped(r *response, generation uint64) {
	ts := &s.types[r.typ]
	ts.dropFlight(r)
	for _, it := range r.fresh {
		if !ts.wants(it.id) {
			continue
		}
		ts.ask(it.id, generation)
		if r.typ == envoy.Cluster {
			s.notIntroduced(it.id)
		}
	}
	for _, m := range r.removed {
		if ts.wants(m.id) {
			ts.ask(m.id, generation)
			ts.held.set(m.id)
		}
	}
	ts.owed = ts.owed || len(r.fresh) == 0 && len(r.removed) == 0
	ts.takeBack(r)
}

// dropFlight takes r from the responses in flight.
func (ts *typeState) dropFlight(r *response) {
	for i, f := range ts.flights {
		if f == r {
			ts.flights = append(ts.flights[:i:i], ts.flights[i+1:]...)
			return
		}
	}
}

// takeBack makes the changes of a response outstanding again.
func (ts *typeState) takeBack(r *response) {
	if r.since != 0 && (ts.since == 0 || r.since < ts.since) {
		ts.since = r.since
	}
	ts.waits = append(ts.waits, r.waits...)
	r.waits = nil
	ts.clean()
}

// waiting reports whether the client waits for an answer that it asked for.
func (s *session) waiting() bool {
	for t := range s.types {
		if ts := &s.types[t]; ts.owed || !ts.asked.empty() {
			return true
		}
	}
	return false
}

// settled returns the generation up to which the client has answered
// everything, given the current one.
func (s *session) settled(generation uint64) uint64 {
	for t := range s.types {
		ts := &s.types[t]
		if ts.since != 0 {
			generation = min(generation, ts.since-1)
		}
		for _, f := range ts.flights {
			if f.since != 0 {
				generation = min(generation, f.since-1)
			}
		}
	}
	return generation
}

// complete reports whether the client is an Envoy that has asked for everything
// that carries traffic.
func (s *session) complete() bool {
	return s.ads && !s.debug && !s.halfClosed &&
		s.types[envoy.Cluster].seen && s.types[envoy.Route].seen && s.types[envoy.Listener].seen
}

// load returns about how many resources the next decisions look at.
func (s *session) load() int {
	n := 0
	for t := range s.types {
		ts := &s.types[t]
		switch changed := ts.dirty.count(); {
		case !ts.seen || changed == 0:
		case !s.delta && fullState[t]:
			n += s.tables[t].live
		default:
			n += changed
		}
	}
	return n
}

// holds adds to the set the ids of a type that the session still uses.
func (s *session) holds(t envoy.Type, set *bitset) {
	ts := &s.types[t]
	for _, b := range []bitset{ts.subscribed, ts.dirty, ts.asked, ts.held} {
		set.union(b)
	}
	for i := range ts.refused {
		set.set(i)
	}
	for _, group := range ts.groups {
		for _, i := range group {
			set.set(i)
		}
	}
	for _, f := range ts.flights {
		for _, it := range f.fresh {
			set.set(it.id)
		}
		for _, m := range f.removed {
			set.set(m.id)
		}
	}
	if t != envoy.Cluster {
		return
	}
	set.union(s.known)
	set.union(s.introducing)
	set.union(s.warming)
	for _, f := range s.types[envoy.Endpoint].flights {
		set.union(f.introduces)
		set.union(f.warms)
	}
}
