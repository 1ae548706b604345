package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairway/envoy"
)

// The ids are those of the protocol's statements: each is one check, in both
// protocols where it exists in both.

func TestXP01to07WarmUp(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		r.publish(world(t))
		c := r.client(delta)
		c.subscribe(envoy.Cluster)
		m := c.take(envoy.Cluster, "a", "b") // XP-03: everything
		if m.nonce == "" {
			t.Error("XP-01: no nonce")
		}
		if !delta && m.version == "" || delta && (m.versions["a"] == "" || m.versions["b"] == "") {
			t.Errorf("XP-01, XP-30: no version in %v", m)
		}
		c.subscribe(envoy.Endpoint, "a", "b") // XP-02: without a node
		c.take(envoy.Endpoint, "a", "b")      // XP-04, XP-06
		c.subscribe(envoy.Listener)
		c.take(envoy.Listener, "http")
		c.subscribe(envoy.Route, "http")
		c.take(envoy.Route, "http") // XP-05 holds for world
		c.subscribe(envoy.Secret, "cert")
		c.take(envoy.Secret, "cert")
		c.silent() // XP-07, XP-31
	})
}

// loaded is a client that has everything of world.
func loaded(t *testing.T, delta bool) (*rig, *client) {
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	c := r.client(delta)
	c.warmUp()
	return r, c
}

func TestXP08StaleNonceIsSilent(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		_, c := loaded(t, delta)
		c.send(requestOf{typ: envoy.Cluster, nonce: "made-up"})
		c.silent()
	})
}

func TestXP08StaleNamesDoNotCount(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, false)
	c.send(requestOf{typ: envoy.Endpoint, names: []string{"b"}, nonce: "made-up"})
	c.silent()
	r.publish(upsert(assignment(t, "a", 9)))
	c.take(envoy.Endpoint, "a") // still subscribed
}

func TestXP09UnknownType(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		_, c := loaded(t, delta)
		c.send(requestOf{url: "type.googleapis.com/envoy.service.runtime.v3.Runtime"})
		c.silent()
		c.alive()
	})
}

func TestXP10NoType(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		c.send(requestOf{url: "?"})
		if delta {
			_ = c.deltaC.Send(&discoveryv3.DeltaDiscoveryRequest{})
		} else {
			_ = c.sotwC.Send(&discoveryv3.DiscoveryRequest{})
		}
		select {
		case err := <-c.err:
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("got %v", err)
			}
		case <-time.After(patience):
			t.Error("the stream goes on")
		}
		next := r.client(delta)
		next.warmUp()
	})
}

func TestXP11OnlyTheChangedType(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(assignment(t, "a", 2)))
		c.take(envoy.Endpoint, "a") // XP-32: exactly one
		c.silent()
	})
}

func TestXP12and13and14Nack(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(cluster(t, "a", 2)))
		m := c.any()
		c.nack(m, "bad cluster a")
		eventually(t, "one NACK counted", func() bool { return testutil.ToFloat64(r.metrics.nacks[envoy.Cluster]) == 1 })
		c.take(envoy.Endpoint, "a") // goes with its Cluster
		c.silent()                  // XP-13
		r.publish(upsert(cluster(t, "a", 3)))
		m = c.any()
		if m.typ != envoy.Cluster {
			t.Fatalf("XP-14: got %v", m)
		}
		c.ack(m)
		c.take(envoy.Endpoint, "a")
		c.silent()
		if n := testutil.ToFloat64(r.metrics.nacks[envoy.Cluster]); n != 1 {
			t.Errorf("XP-12: %v NACKs counted", n)
		}
	})
}

func TestXP13NackOfEverything(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		r.publish(upsert(cluster(t, "a", 1)))
		c := r.client(delta)
		c.subscribe(envoy.Cluster)
		c.nack(c.want(envoy.Cluster, "a"), "no")
		c.silent()
		c.stillServes(r)
	})
}

// stillServes shows that the stream still answers when world was not published.
func (c *client) stillServes(r *rig) {
	c.t.Helper()
	r.publish(upsert(extension(c.t, "limit", 1)))
	c.alive()
}

func TestXP15OneRefusedResourceHoldsUpNobody(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		for _, typ := range []envoy.Type{envoy.Cluster, envoy.Endpoint, envoy.Route, envoy.Listener, envoy.Secret} {
			t.Run(typ.String(), func(t *testing.T) {
				r, c := loaded(t, delta)
				bad := map[envoy.Type]*envoy.Resource{
					envoy.Cluster: cluster(t, "a", 9), envoy.Endpoint: assignment(t, "a", 9), envoy.Route: route(t, "http", "a"),
					envoy.Listener: listener(t, "http", 9), envoy.Secret: secret(t, "cert", "bad"),
				}[typ]
				r.publish(upsert(bad))
				c.nack(c.any(), "refused "+bad.Name)
				if typ == envoy.Cluster {
					c.take(envoy.Endpoint, "a")
				}
				r.publish(upsert(assignment(t, "b", 7)))
				c.take(envoy.Endpoint, "b")
				c.silent()
			})
		}
	})
}

func TestXP16LastRequestCounts(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		names := many("n", 5)
		for _, name := range names {
			r.publish(upsert(assignment(t, name, 1)))
		}
		for i := range names {
			c.names[envoy.Endpoint] = append(c.names[envoy.Endpoint], names[i])
			if delta {
				c.send(requestOf{typ: envoy.Endpoint, names: names[i : i+1]})
			} else {
				c.send(requestOf{typ: envoy.Endpoint, names: c.names[envoy.Endpoint], nonce: c.last[envoy.Endpoint].nonce})
			}
		}
		got := map[string]bool{}
		for len(got) < len(names) {
			m := c.any()
			for name := range m.bodies {
				got[name] = true
			}
			c.ack(m)
		}
	})
}

func TestXP17and18Subset(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		r.publish(world(t))
		c := r.client(delta)
		c.subscribe(envoy.Endpoint, "a")
		c.take(envoy.Endpoint, "a")
		c.subscribe(envoy.Endpoint, "b")
		c.take(envoy.Endpoint, "b")
		c.silent()
	})
}

func TestXP19EmptyListUnsubscribes(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, false)
	c.names[envoy.Endpoint] = nil
	c.subscribe(envoy.Endpoint)
	c.silent()
	r.publish(upsert(assignment(t, "a", 2)))
	c.silent()
}

func TestXP20ExplicitWildcard(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		r.publish(world(t))
		c := r.client(delta)
		c.subscribe(envoy.Cluster, "*")
		c.take(envoy.Cluster, "a", "b")
		c.subscribe(envoy.Endpoint, "*")
		c.take(envoy.Endpoint, "a", "b")
	})
}

func TestXP21and34and46NamesThatDoNotExist(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		c.subscribe(envoy.Endpoint, "later")
		if delta {
			m := c.want(envoy.Endpoint)
			if !slices.Equal(m.removed, []string{"later"}) {
				t.Fatalf("got %v", m)
			}
			c.ack(m)
		} else {
			m := c.take(envoy.Endpoint, "later")
			if endpointCount(t, m, "later") != 0 {
				t.Fatalf("invented endpoints: %v", m)
			}
		}
		r.publish(upsert(assignment(t, "later", 1)))
		if m := c.take(envoy.Endpoint, "later"); endpointCount(t, m, "later") != 1 {
			t.Fatalf("got %v", m)
		}
		r.publish(upsert(assignment(t, "later")))
		if m := c.take(envoy.Endpoint, "later"); endpointCount(t, m, "later") != 0 {
			t.Fatalf("XP-46: got %v", m)
		}
	})
}

func TestXP21OtherTypes(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		c.subscribe(envoy.Route, "later")
		c.ack(c.want(envoy.Route)) // removed, or a response without resources
		c.subscribe(envoy.Secret, "later")
		if delta {
			c.ack(c.gone(envoy.Secret, []string{"later"}))
		} else {
			c.silent()
		}
		r.publish(upsert(route(t, "later"), secret(t, "later", "chain")))
		got := []envoy.Type{c.takeOnly("later").typ, c.takeOnly("later").typ}
		slices.Sort(got) // the Secret may still wait for the answer before it
		if !slices.Equal(got, []envoy.Type{envoy.Secret, envoy.Route}) {
			t.Errorf("got %v", got)
		}
	})
}

// takeOnly acknowledges the next response, which has to carry one name.
func (c *client) takeOnly(name string) message {
	c.t.Helper()
	m := c.any()
	if !slices.Equal(m.names(), []string{name}) {
		c.t.Fatalf("got %v, want %s", m, name)
	}
	c.ack(m)
	return m
}

func endpointCount(t *testing.T, m message, name string) int {
	t.Helper()
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := m.bodies[name].UnmarshalTo(cla); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range cla.GetEndpoints() {
		n += len(l.GetLbEndpoints())
	}
	return n
}

func TestXP22and28FullState(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, false)
	r.publish(upsert(cluster(t, "c", 1)))
	c.take(envoy.Cluster, "a", "b", "c")
	r.publish(upsert(listener(t, "https", 8443)))
	c.take(envoy.Listener, "http", "https")
	r.publish(remove(envoy.Name{Type: envoy.Listener, Name: "https"}))
	c.take(envoy.Listener, "http")
}

func TestXP22NothingBeforeTheFirstPublish(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		c := r.client(delta)
		c.subscribe(envoy.Cluster)
		c.silent()
		r.publish(world(t))
		c.take(envoy.Cluster, "a", "b")
	})
}

func TestXP23RoutesAndSecretsGoSilently(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, false)
	r.publish(remove(envoy.Name{Type: envoy.Route, Name: "http"}, envoy.Name{Type: envoy.Secret, Name: "cert"}, envoy.Name{Type: envoy.Endpoint, Name: "b"}))
	c.silent()
}

func TestXP24and40Reconnect(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		versions, last := c.lastVersions(), c.have[envoy.Cluster]
		again := r.client(delta)
		if delta {
			versions["invented"] = "1"
			again.send(requestOf{typ: envoy.Endpoint, initial: versions})
			again.gone(envoy.Endpoint, []string{"invented"})
			return
		}
		again.send(requestOf{typ: envoy.Cluster, version: &last})
		if m := again.take(envoy.Cluster, "a", "b"); m.version != last {
			t.Errorf("version %s became %s", last, m.version)
		}
	})
}

// lastVersions are the versions of all load assignments that c has.
func (c *client) lastVersions() map[string]string {
	out := map[string]string{}
	for name, v := range c.last[envoy.Endpoint].versions {
		out[name] = v
	}
	return out
}

func TestXP25and26and27SameForEverybody(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		one, other := newRig(t, Options{}, ServerOptions{}), newRig(t, Options{}, ServerOptions{})
		one.publish(world(t))
		for _, res := range slices.Backward(world(t).Upserts) { // another replica, in another order
			other.publish(upsert(res))
		}
		var versions []string
		var per []map[string]string
		for n := range 20 {
			r := one
			if n%2 == 1 {
				r = other
			}
			c := newClient(t, r.dial(), delta, fmt.Sprint("node-", n))
			c.subscribe(envoy.Endpoint)
			m := c.take(envoy.Endpoint, "a", "b")
			versions, per = append(versions, m.version), append(per, m.versions)
		}
		for n := range versions {
			if versions[n] != versions[0] || !maps.Equal(per[n], per[0]) {
				t.Errorf("node %d: %s %v, node 0: %s %v", n, versions[n], per[n], versions[0], per[0])
			}
		}
	})
}

func TestXP27HundredStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	conn := r.dial()
	var clients []*client
	for range 100 {
		c := newClient(t, conn, false, "n")
		c.subscribe(envoy.Listener)
		clients = append(clients, c)
	}
	for _, c := range clients {
		c.take(envoy.Listener, "http")
	}
}

func TestXP29ChangedClusterBringsItsAssignment(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		before := r.tables[envoy.Endpoint].lookup("a").version
		r.publish(upsert(cluster(t, "a", 2)))
		m := c.any()
		if m.typ != envoy.Cluster {
			t.Fatalf("got %v", m)
		}
		e := c.take(envoy.Endpoint, "a") // without an ACK of the Cluster: that is withheld
		if delta && e.versions["a"] == before {
			t.Error("the version of the assignment did not change")
		}
		c.ack(m)
		c.silent()
	})
}

func TestXP30Names(t *testing.T) {
	t.Parallel()
	_, c := loaded(t, true)
	c.subscribe(envoy.Cluster, "a")
	m := c.take(envoy.Cluster, "a")
	if nameOf(m.bodies["a"]) != "a" || m.nonce == "" || m.versions["a"] == "" {
		t.Errorf("got %v", m)
	}
	if m.version != "" {
		t.Errorf("XP-41: a system version %q", m.version)
	}
}

func TestXP33Deletion(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, true)
	r.publish(remove(envoy.Name{Type: envoy.Cluster, Name: "b"}, envoy.Name{Type: envoy.Endpoint, Name: "b"}))
	c.ack(c.gone(envoy.Cluster, []string{"b"}))
	c.ack(c.gone(envoy.Endpoint, []string{"b"}))
	c.silent()
}

func TestXP35SubscribingAgainSendsAgain(t *testing.T) {
	t.Parallel()
	_, c := loaded(t, true)
	c.subscribe(envoy.Endpoint, "a")
	c.take(envoy.Endpoint, "a")
	c.silent()
}

func TestXP36SuperfluousUnsubscribe(t *testing.T) {
	t.Parallel()
	_, c := loaded(t, true)
	c.send(requestOf{typ: envoy.Endpoint, unsubscribe: []string{"never"}})
	c.silent()
	c.alive()
}

func TestXP37SubscriptionWithStaleNonce(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	c := r.client(true)
	c.subscribe(envoy.Endpoint, "a")
	m := c.want(envoy.Endpoint, "a")
	c.send(requestOf{typ: envoy.Endpoint, names: []string{"b"}, nonce: "stale"})
	c.want(envoy.Endpoint, "b") // although a is not acknowledged
	c.ack(m)
	c.silent()
}

func TestXP38and39WildcardPlusName(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, true)
	c.subscribe(envoy.Cluster, "a")
	c.take(envoy.Cluster, "a")
	c.take(envoy.Endpoint, "a")
	r.publish(upsert(cluster(t, "c", 1)))
	c.take(envoy.Cluster, "c") // XP-39
	c.send(requestOf{typ: envoy.Cluster, unsubscribe: []string{"a"}})
	c.take(envoy.Cluster, "a") // XP-38: it still exists
	c.take(envoy.Endpoint, "a")
	c.subscribe(envoy.Cluster, "none")
	c.ack(c.gone(envoy.Cluster, []string{"none"}))
	c.send(requestOf{typ: envoy.Cluster, unsubscribe: []string{"none"}})
	c.ack(c.gone(envoy.Cluster, []string{"none"}))
	c.silent()
}

func TestXP40Reconnect(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, true)
	versions := map[string]string{}
	for _, name := range []string{"a", "b"} {
		versions[name] = r.tables[envoy.Cluster].lookup(name).version
	}
	again := r.client(true)
	again.send(requestOf{typ: envoy.Cluster, initial: versions})
	again.send(requestOf{typ: envoy.Endpoint, names: []string{"a", "b"}, initial: c.lastVersions()})
	again.silent()
	r.publish(upsert(assignment(t, "b", 9)))
	again.take(envoy.Endpoint, "b")
}

func TestXP42Streams(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		streams := func() float64 {
			return testutil.ToFloat64(r.metrics.streams.WithLabelValues(protocolName(delta)))
		}
		if n := streams(); n != 1 {
			t.Errorf("%v streams", n)
		}
		c.cancel()
		eventually(t, "the stream is gone", func() bool { return streams() == 0 && len(r.Streams()) == 0 })
	})
}
