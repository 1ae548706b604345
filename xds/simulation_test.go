package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairway/envoy"
)

// chooser makes the random choices of a simulation.
type chooser func(n int) int

// simulation plays a store against clients that behave as Envoy does, without
// gRPC and without time: whatever waits for the cap of a gate never happens.
type simulation struct {
	t       testing.TB
	choose  chooser
	store   *Store
	clients []*simClient
	live    map[string]int             // Cluster → its version
	badOnes map[string]bool            // versions that clients refuse
	named   map[string]map[string]bool // version of the route table → Clusters that it names
	serial  int
	refuse  bool // clients refuse every seventh version of a Cluster
}

// bad reports whether clients refuse a version of a Cluster.
func (s *simulation) bad(serial int) bool { return s.refuse && serial%7 == 0 }

// simClient is one client and the little of a stream that it needs.
type simClient struct {
	sim     *simulation
	st      *stream
	nonce   int
	queued  [envoy.NumTypes]*response
	inbox   []*response
	unacked [envoy.NumTypes][]*response
	asked   map[string]bool // load assignments subscribed to

	clusters map[string]string // what the client holds: name → version
	usable   map[string]bool   // Clusters whose introduction was acknowledged
	refused  map[*response]bool
	nacks    int
	assigned map[string]string
	routes   []*response // route tables in play: the last acknowledged one and all after it
}

func newSimulation(t testing.TB, choose chooser, order *conditionTable) *simulation {
	s := &simulation{t: t, choose: choose, store: NewStore(Options{}), live: map[string]int{}, badOnes: map[string]bool{}, named: map[string]map[string]bool{}}
	for n := range 4 {
		st := s.store.open(n%2 == 0, true, false)
		st.session.order = order
		c := &simClient{sim: s, st: st, clusters: map[string]string{}, usable: map[string]bool{}, refused: map[*response]bool{}, assigned: map[string]string{}, asked: map[string]bool{}}
		s.clients = append(s.clients, c)
	}
	return s
}

// publish changes some Clusters and a route table that names exactly the live
// ones.
func (s *simulation) publish() {
	var d envoy.Delta
	for range 1 + s.choose(3) {
		name := fmt.Sprint("c", s.choose(6))
		_, exists := s.live[name]
		if exists && s.choose(2) == 0 {
			delete(s.live, name)
			d.Removes = append(d.Removes, envoy.Name{Type: envoy.Cluster, Name: name}, envoy.Name{Type: envoy.Endpoint, Name: name})
			d.Upserts = slices.DeleteFunc(d.Upserts, func(r *envoy.Resource) bool { return r.Name == name })
			continue
		}
		s.serial++
		s.live[name] = s.serial
		d.Removes = slices.DeleteFunc(d.Removes, func(n envoy.Name) bool { return n.Name == name })
		c := cluster(s.t, name, s.serial)
		s.badOnes[c.Version] = s.bad(s.serial)
		d.Upserts = append(d.Upserts, c)
		if !exists || s.choose(2) == 0 {
			d.Upserts = append(d.Upserts, assignment(s.t, name, 1+s.choose(60000)))
		}
	}
	names := slices.Sorted(maps.Keys(s.live))
	table := route(s.t, "http", names...)
	s.named[table.Version] = map[string]bool{}
	for _, name := range names {
		s.named[table.Version][name] = true
	}
	d.Upserts = append(d.Upserts, table)
	s.store.Publish(d, time.Time{})
}

func (c *simClient) subscribe(t envoy.Type, names ...string) {
	sub := subscription{wildcard: len(names) == 0}
	if c.st.session.delta {
		sub.subscribe = names
	} else {
		for name := range c.asked {
			sub.names = append(sub.names, name)
		}
		if t != envoy.Endpoint {
			sub.names = names
		}
		if r := c.queued[t]; r != nil { // the library throws it away
			c.st.session.restoreDropped(r, c.sim.store.generation)
			c.queued[t] = nil
		}
	}
	c.sim.store.intern(t, names)
	c.st.session.subscribe(t, sub, c.sim.store.generation)
}

// decide queues what may leave, as a stream does.
func (c *simClient) decide() {
	for t := range envoy.NumTypes {
		if c.queued[t] == nil {
			c.queued[t] = c.st.session.next(envoy.Type(t), time.Unix(0, 0), c.sim.store.generation)
			if r := c.queued[t]; r != nil {
				c.inbox = append(c.inbox, r)
			}
		}
	}
}

// transmit sends the oldest queued response and lets the client apply it.
func (c *simClient) transmit() error {
	r := c.inbox[0]
	c.inbox = c.inbox[1:]
	if c.queued[r.typ] != r {
		return nil // dropped
	}
	c.queued[r.typ] = nil
	c.nonce++
	c.st.session.sent(r, fmt.Sprint(c.nonce))
	c.unacked[r.typ] = append(c.unacked[r.typ], r)
	switch r.typ {
	case envoy.Cluster:
		return c.applyClusters(r)
	case envoy.Endpoint:
		for _, it := range r.items {
			if c.asked[it.name] { // Envoy ignores what it left meanwhile
				c.assigned[it.name] = it.version
			}
		}
	case envoy.Route:
		for _, it := range r.items {
			c.routes = append(c.routes, r)
			for name := range c.sim.named[it.version] {
				if !c.usable[name] && !c.sim.refuse {
					return fmt.Errorf("a route names Cluster %s before its introduction was acknowledged", name)
				}
			}
		}
	}
	return nil
}

func (c *simClient) applyClusters(r *response) error {
	for _, it := range r.items {
		if c.sim.badOnes[it.version] {
			c.refused[r] = true
		}
	}
	if c.refused[r] && c.st.session.delta {
		return nil // none of them
	}
	next := maps.Clone(c.clusters)
	if !c.st.session.delta {
		next = map[string]string{}
	}
	for _, m := range r.removed {
		delete(next, m.name)
	}
	for _, it := range r.items {
		if !c.sim.badOnes[it.version] {
			next[it.name] = it.version
		} else if old, ok := c.clusters[it.name]; ok {
			next[it.name] = old // refused one by one
		}
	}
	for name := range c.clusters {
		if _, ok := next[name]; ok {
			continue
		}
		for _, table := range c.routes {
			if c.sim.named[table.items[0].version][name] {
				return fmt.Errorf("Cluster %s left while a route names it", name)
			}
		}
		delete(c.usable, name)
		delete(c.assigned, name)
		delete(c.asked, name)
		if c.st.session.delta {
			c.st.session.subscribe(envoy.Endpoint, subscription{unsubscribe: []string{name}}, c.sim.store.generation)
		}
	}
	added := slices.DeleteFunc(slices.Sorted(maps.Keys(next)), func(name string) bool { return c.asked[name] })
	c.clusters = next
	for _, name := range added {
		c.asked[name] = true
	}
	if len(added) > 0 || !c.st.session.delta {
		c.subscribe(envoy.Endpoint, added...)
	}
	return nil
}

// acknowledge answers the oldest response of some type.
func (c *simClient) acknowledge() {
	for range envoy.NumTypes {
		t := c.sim.choose(envoy.NumTypes)
		if len(c.unacked[t]) == 0 {
			continue
		}
		r := c.unacked[t][0]
		c.unacked[t] = c.unacked[t][1:]
		if c.refused[r] {
			c.nack(r)
			return
		}
		c.acknowledged(r)
		c.st.session.answer(r.typ, r.nonce, false, "", time.Unix(0, 0))
		return
	}
}

// nack refuses a response, with a text that names the culprits now and then.
func (c *simClient) nack(r *response) {
	text := "refused"
	for _, it := range r.items {
		if c.sim.badOnes[it.version] && (!c.st.session.delta || c.sim.choose(2) == 0) {
			text += " " + it.name
		}
	}
	c.nacks++
	c.st.session.answer(r.typ, r.nonce, true, text, time.Unix(0, 0))
}

func (c *simClient) acknowledged(r *response) {
	for _, it := range r.items {
		switch _, holds := c.clusters[it.name]; {
		case r.typ == envoy.Route:
			c.routes = c.routes[slices.Index(c.routes, r):]
		case holds && (r.typ == envoy.Cluster || r.typ == envoy.Endpoint):
			c.usable[it.name] = true
		}
	}
}

// step lets one random thing happen.
func (s *simulation) step() error {
	c := s.clients[s.choose(len(s.clients))]
	switch s.choose(16) {
	case 0:
		s.publish()
	case 1, 2, 3:
		c.decide()
	case 4, 5, 6:
		for len(c.inbox) > 0 {
			if err := c.transmit(); err != nil {
				return err
			}
		}
	case 7, 8, 9:
		if len(c.inbox) > 0 {
			return c.transmit()
		}
	default:
		c.acknowledge()
	}
	return nil
}

// settle lets everybody finish, and compares with the store.
func (s *simulation) settle() error {
	for range 300 {
		for _, c := range s.clients {
			c.decide()
			if len(c.inbox) > 0 {
				if err := c.transmit(); err != nil {
					return err
				}
			}
			c.acknowledge()
		}
	}
	for n, c := range s.clients {
		want, assigned := map[string]string{}, map[string]string{}
		for name := range s.live {
			version := s.store.tables[envoy.Cluster].lookup(name).version
			if s.badOnes[version] { // an older form, if any
				if c.clusters[name] == version {
					return fmt.Errorf("client %d took what it refuses", n)
				}
				delete(c.clusters, name)
				delete(c.assigned, name)
				continue
			}
			want[name] = version
			assigned[name] = s.store.tables[envoy.Endpoint].lookup(name).version
		}
		if !maps.Equal(c.clusters, want) || !maps.Equal(c.assigned, assigned) {
			return fmt.Errorf("client %d ends with %v %v, want %v %v\n%s", n, c.clusters, c.assigned, want, assigned, c.st.session.dump())
		}
		if len(c.routes) != 1 || !maps.Equal(s.named[c.routes[0].items[0].version], keys(s.live)) {
			return fmt.Errorf("client %d ends with routes %v", n, c.routes)
		}
		if got := c.st.session.settled(s.store.generation); got != s.store.generation {
			return fmt.Errorf("client %d settled generation %d of %d", n, got, s.store.generation)
		}
	}
	return nil
}

func keys(m map[string]int) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}

func (s *simulation) run(steps int) error {
	s.publish()
	for _, c := range s.clients {
		c.subscribe(envoy.Cluster)
		c.subscribe(envoy.Route, "http")
	}
	for range steps {
		if err := s.step(); err != nil {
			return err
		}
	}
	return s.settle()
}

func TestSE04Order(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		choice := rapid.IntRange(0, 1<<20)
		s := newSimulation(t, func(n int) int { return choice.Draw(rt, "choice") % n }, &conditions)
		if err := s.run(300); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestSE08RefusalsHoldUpNobody(t *testing.T) {
	t.Parallel()
	nacks := 0
	rapid.Check(t, func(rt *rapid.T) {
		choice := rapid.IntRange(0, 1<<20)
		s := newSimulation(t, func(n int) int { return choice.Draw(rt, "choice") % n }, &conditions)
		s.refuse = true
		if err := s.run(300); err != nil {
			rt.Fatal(err)
		}
		for _, c := range s.clients {
			nacks += c.nacks
		}
	})
	if nacks == 0 {
		t.Error("nothing was refused")
	}
}

// TestSE22 shows that the simulation notices when a gate is missing.
func TestSE22Mutations(t *testing.T) {
	t.Parallel()
	for name, mutate := range map[string]func(*conditionTable){
		"route gate open":     func(c *conditionTable) { c[adding][envoy.Route] = condition{} },
		"removal gate open":   func(c *conditionTable) { c[removing][envoy.Cluster] = condition{} },
		"none (must be well)": func(*conditionTable) {},
	} {
		order := conditions
		mutate(&order)
		var err error
		for seed := uint64(0); seed < 60 && err == nil; seed++ {
			random := rand.New(rand.NewPCG(seed, 1))
			err = newSimulation(t, random.IntN, &order).run(300)
		}
		if healthy := order[adding][envoy.Route].introduced && len(order[removing][envoy.Cluster].added) > 0; healthy != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// dump describes what a session still has to do.
func (s *session) dump() string {
	out := fmt.Sprintf("introducing %v known %v retry %v\n", slices.Collect(s.introducing.all()), slices.Collect(s.known.all()), s.retry)
	for t := range s.types {
		ts := &s.types[t]
		out += fmt.Sprintf("%s dirty %v held %v flights %d groups %v refused %v\n", envoy.Type(t), slices.Collect(ts.dirty.all()), slices.Collect(ts.held.all()), len(ts.flights), ts.groups, slices.Collect(maps.Keys(ts.refused)))
	}
	return out
}
