package xds

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairway/envoy"
)

// Options configure a Store.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept but not registered

	// GateCap is how long a gate stays closed when a client neither accepts nor
	// refuses what the gate waits for. The default is 5 s.
	GateCap time.Duration

	// OnNack is called for every resource that an Envoy refused, once it is
	// known which one it is. Called without locks held.
	OnNack func(Nack)

	// OnSettled is called with ever greater generations: some Envoy has answered
	// everything it subscribed to as of that generation. A refusal is an answer
	// too; OnNack is called before. Called without the store's locks held, one
	// call at a time.
	OnSettled func(generation uint64)
}

// Nack says which resources an Envoy refused and why.
type Nack struct {
	Type          envoy.Type
	Names, Owners []string
	Node, Message string // Message holds nothing of a Secret
}

// Store holds the current resources and serves them to streams.
type Store struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	heavy   chan struct{} // bounds work on large states, so that a storm of clients never stalls Publish
	ready   chan struct{} // closed by the first Publish

	// mu is held exclusively while resources change and all sessions are marked,
	// and shared while a session works: a session sees a publish whole or not at
	// all.
	mu         sync.RWMutex
	tables     *tables
	streams    map[*stream]struct{}
	generation uint64

	settleMu sync.Mutex // serialises OnSettled
	settled  uint64
}

// NewStore returns an empty Store. Streams wait until something is published.
func NewStore(opts Options) *Store {
	if opts.GateCap <= 0 {
		opts.GateCap = 5 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{
		opts:    opts,
		log:     opts.Logger,
		metrics: newMetrics(opts.Registerer),
		heavy:   make(chan struct{}, heavySlots()),
		ready:   make(chan struct{}),
		tables:  newTables(),
		streams: map[*stream]struct{}{},
	}
}

// Publish applies the delta at once for everybody and returns its generation
// (1, 2, …). since is when the change was first seen. Its cost is the changed
// resources times the streams; it never waits for a client.
func (s *Store) Publish(d envoy.Delta, since time.Time) uint64 {
	s.mu.Lock()
	s.generation++
	generation := s.generation
	changed := s.apply(d)
	woken := s.markAll(changed, since)
	settled := s.settledNow()
	s.sweep()
	for t := range s.tables {
		s.metrics.resources[t].Set(float64(s.tables[t].live))
	}
	if generation == 1 {
		close(s.ready)
	}
	s.mu.Unlock()

	for _, st := range woken {
		st.signal()
	}
	s.settle(settled)
	return generation
}

// changed are the ids of one publish, by type.
type changed [envoy.NumTypes][]id

// apply replaces resources. The version of a load assignment mixes in that of
// the Cluster of the same name: Envoy warms a changed Cluster until it gets its
// assignment again, so a change of the Cluster has to be one of the assignment.
func (s *Store) apply(d envoy.Delta) changed {
	var c changed
	clusters := map[string]bool{}
	touch := func(t envoy.Type, i id, name string) {
		c[t] = append(c[t], i)
		if t == envoy.Cluster {
			clusters[name] = true
		}
	}
	var assignments []*envoy.Resource
	for _, n := range d.Removes {
		if i, ok := s.tables[n.Type].remove(n.Name); ok {
			touch(n.Type, i, n.Name)
		}
	}
	for _, res := range d.Upserts {
		switch old := s.tables[res.Type].lookup(res.Name); {
		case res.Type == envoy.Endpoint:
			assignments = append(assignments, res)
		case old != nil && old.version == res.Version:
			s.tables[res.Type].own(res)
		default:
			touch(res.Type, s.tables[res.Type].put(res, res.Version, s.generation), res.Name)
		}
	}
	for _, res := range assignments {
		delete(clusters, res.Name)
		s.applyAssignment(res, &c)
	}
	for name := range clusters {
		if i, ok := s.tables[envoy.Endpoint].ids[name]; ok {
			if res := s.tables[envoy.Endpoint].entries[i].res; res != nil {
				s.applyAssignment(res, &c)
			}
		}
	}
	return c
}

// applyAssignment replaces a load assignment if its content or its Cluster changed.
func (s *Store) applyAssignment(res *envoy.Resource, c *changed) {
	version := res.Version
	if cluster := s.tables[envoy.Cluster].lookup(res.Name); cluster != nil {
		version = envoy.Version([]byte(version), []byte(cluster.version))
	}
	t := &s.tables[envoy.Endpoint]
	if old := t.lookup(res.Name); old != nil && old.version == version {
		t.own(res)
		return
	}
	c[envoy.Endpoint] = append(c[envoy.Endpoint], t.put(res, version, s.generation))
}

// own takes over the owners of a resource whose content did not change.
func (t *table) own(res *envoy.Resource) {
	e := &t.entries[t.ids[res.Name]]
	if !slices.Equal(e.res.Owners, res.Owners) {
		c := *e.res
		c.Owners = res.Owners
		e.res = &c
	}
}

// markAll marks the changed resources in all sessions and returns the streams
// that have something to do.
func (s *Store) markAll(c changed, since time.Time) []*stream {
	var follow [envoy.NumTypes]*propagation
	var woken []*stream
	for st := range s.streams {
		wake := false
		for t, ids := range c {
			concerned := false
			for _, i := range ids {
				concerned = st.session.mark(envoy.Type(t), i, s.generation) || concerned
			}
			if concerned {
				wake = true
				s.follow(&follow[t], st, envoy.Type(t), since)
			}
		}
		if wake {
			woken = append(woken, st)
		}
	}
	return woken
}

// follow counts a session in as one whose answer the propagation waits for.
func (s *Store) follow(p **propagation, st *stream, t envoy.Type, since time.Time) {
	ts := &st.session.types[t]
	if since.IsZero() || st.session.debug || len(ts.waits) >= maxWaits {
		return
	}
	if *p == nil {
		*p = &propagation{since: since, out: s.metrics.propagation[t]}
	}
	(*p).waiting.Add(1)
	ts.waits = append(ts.waits, *p)
}

// sweep takes back ids that nobody uses, when there are many.
func (s *Store) sweep() {
	for t := range s.tables {
		if !s.tables[t].due() {
			continue
		}
		var held bitset
		for st := range s.streams {
			st.session.holds(envoy.Type(t), &held)
		}
		s.tables[t].sweep(held)
	}
}

// intern gives ids to names that have none.
func (s *Store) intern(t envoy.Type, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.tables[t].intern(name)
	}
}

// Resources returns the current resources of a type, sorted by name.
func (s *Store) Resources(t envoy.Type) []*envoy.Resource {
	out, _ := s.snapshot(t)
	return out
}

// snapshot returns the resources of a type and the version of the whole.
func (s *Store) snapshot(t envoy.Type) (all []*envoy.Resource, version string) {
	s.mu.RLock()
	version = sumVersion(s.tables[t].sum)
	all = make([]*envoy.Resource, 0, s.tables[t].live)
	for i := range s.tables[t].entries {
		if res := s.tables[t].entries[i].res; res != nil {
			all = append(all, res)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) })
	return all, version
}

// Ready reports whether something was published.
func (s *Store) Ready() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// settledNow returns the greatest generation that some Envoy has answered: a
// publish may leave an Envoy nothing to do.
func (s *Store) settledNow() uint64 {
	best := uint64(0)
	for st := range s.streams {
		best = max(best, st.settled(s.generation))
		if best == s.generation {
			break
		}
	}
	return best
}

// settle reports a generation that some Envoy has answered.
func (s *Store) settle(generation uint64) {
	if s.opts.OnSettled == nil || generation == 0 {
		return
	}
	s.settleMu.Lock()
	defer s.settleMu.Unlock()
	if generation > s.settled {
		s.settled = generation
		s.opts.OnSettled(generation)
	}
}
