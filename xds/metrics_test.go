package xds

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairway/envoy"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r := newRig(t, Options{Registerer: reg}, ServerOptions{})
	r.publish(world(t))
	c := r.client(true)
	c.warmUp()
	person := r.beside(ServerOptions{Debug: true}).client(true)
	person.subscribe(envoy.Cluster)
	person.take(envoy.Cluster, "a", "b")
	eventually(t, "all acknowledged", func() bool { return testutil.ToFloat64(r.metrics.acks[envoy.Secret]) == 1 })
	err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP fairway_xds_acks_total Responses that Envoys accepted, by resource type.
# TYPE fairway_xds_acks_total counter
fairway_xds_acks_total{type="Cluster"} 1
fairway_xds_acks_total{type="Endpoint"} 1
fairway_xds_acks_total{type="ExtensionConfig"} 0
fairway_xds_acks_total{type="Listener"} 1
fairway_xds_acks_total{type="Route"} 1
fairway_xds_acks_total{type="Secret"} 1
# HELP fairway_xds_pushes_total Responses sent to Envoys, by resource type.
# TYPE fairway_xds_pushes_total counter
fairway_xds_pushes_total{type="Cluster"} 1
fairway_xds_pushes_total{type="Endpoint"} 1
fairway_xds_pushes_total{type="ExtensionConfig"} 0
fairway_xds_pushes_total{type="Listener"} 1
fairway_xds_pushes_total{type="Route"} 1
fairway_xds_pushes_total{type="Secret"} 1
# HELP fairway_xds_resources Published resources, by type.
# TYPE fairway_xds_resources gauge
fairway_xds_resources{type="Cluster"} 2
fairway_xds_resources{type="Endpoint"} 2
fairway_xds_resources{type="ExtensionConfig"} 1
fairway_xds_resources{type="Listener"} 1
fairway_xds_resources{type="Route"} 1
fairway_xds_resources{type="Secret"} 1
# HELP fairway_xds_streams Open discovery streams of Envoys, by protocol.
# TYPE fairway_xds_streams gauge
fairway_xds_streams{protocol="delta"} 1
fairway_xds_streams{protocol="sotw"} 0
`), "fairway_xds_acks_total", "fairway_xds_pushes_total", "fairway_xds_resources", "fairway_xds_streams")
	if err != nil {
		t.Error(err)
	}
}

func propagations(t *testing.T, r *rig, reg *prometheus.Registry, typ envoy.Type) (count uint64, sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "fairway_xds_propagation_seconds" && m.GetLabel()[0].GetValue() == typ.String() {
				return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
			}
		}
	}
	return 0, 0
}

func TestPropagationEndsWithTheLastEnvoy(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r := newRig(t, Options{Registerer: reg}, ServerOptions{})
	r.publish(world(t))
	var clients []*client
	for _, delta := range []bool{true, false, true} {
		c := r.client(delta)
		c.warmUp()
		clients = append(clients, c)
	}
	r.Publish(upsert(assignment(t, "a", 2)), time.Now().Add(-time.Hour))
	clients[0].take(envoy.Endpoint, "a")
	clients[1].take(envoy.Endpoint, "a")
	clients[2].want(envoy.Endpoint, "a")
	clients[0].silent()
	if n, _ := propagations(t, r, reg, envoy.Endpoint); n != 0 {
		t.Error("counted before the last Envoy answered")
	}
	clients[2].cancel() // an Envoy that goes is not waited for
	eventually(t, "counted", func() bool {
		n, sum := propagations(t, r, reg, envoy.Endpoint)
		return n == 1 && sum > 3599 && sum < 3700
	})
}

func TestStuckEnvoyIsNotRememberedWithoutBound(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, true)
	r.publish(upsert(assignment(t, "a", 2)))
	c.want(envoy.Endpoint, "a") // and never answers
	for n := range 1000 {
		r.publish(upsert(assignment(t, "a", 3+n)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for st := range r.streams {
		ts := &st.session.types[envoy.Endpoint]
		if len(ts.waits) > maxWaits || len(ts.flights) != 1 {
			t.Errorf("%d waits, %d flights", len(ts.waits), len(ts.flights))
		}
	}
}

// settles collects what OnSettled reports.
type settles struct {
	mu  sync.Mutex
	all []uint64
}

func (s *settles) add(g uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, g)
}

func (s *settles) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return 0
	}
	return s.all[len(s.all)-1]
}

func TestOnSettled(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		var got settles
		r := newRig(t, Options{OnSettled: got.add}, ServerOptions{})
		r.publish(world(t))
		person := r.beside(ServerOptions{Debug: true}).client(delta)
		person.warmUp()
		c := r.client(delta)
		c.subscribe(envoy.Cluster)
		c.take(envoy.Cluster, "a", "b")
		c.subscribe(envoy.Endpoint, "a", "b")
		c.take(envoy.Endpoint, "a", "b")
		c.subscribe(envoy.Listener)
		c.take(envoy.Listener, "http")
		c.subscribe(envoy.Route, "http")
		m := c.want(envoy.Route, "http")
		c.silent()
		if n := got.last(); n != 0 {
			t.Fatalf("settled %d before the routes are acknowledged", n)
		}
		c.ack(m)
		eventually(t, "settled", func() bool { return got.last() == 1 })

		g := r.publish(upsert(route(t, "http", "b")))
		m = c.want(envoy.Route, "http")
		for n := range 5 { // endpoints go on changing, one answer behind
			r.publish(upsert(assignment(t, "a", 100+n)))
			e := c.want(envoy.Endpoint, "a")
			r.publish(upsert(assignment(t, "b", 100+n)))
			c.ack(e)
			c.take(envoy.Endpoint, "b")
		}
		if n := got.last(); n != g-1 {
			t.Fatalf("settled %d, want %d", n, g-1)
		}
		r.publish(upsert(assignment(t, "a", 200)))
		e := c.want(envoy.Endpoint, "a")
		r.publish(upsert(assignment(t, "b", 200)))
		c.ack(m)
		eventually(t, "churn does not postpone it", func() bool { return got.last() >= g })
		c.ack(e)
		c.take(envoy.Endpoint, "b")
		last := r.publish(upsert(secret(t, "unrelated", "x")))
		eventually(t, "nothing to do is settled", func() bool { return got.last() == last })
		for n := 1; n < len(got.all); n++ {
			if got.all[n] <= got.all[n-1] {
				t.Errorf("not ascending: %v", got.all)
			}
		}
	})
}
