package xds

import (
	"slices"
	"testing"
	"time"

	"fairway/envoy"
)

// addition adds a host of a new Service: Cluster, endpoints and route.
func addition(t *testing.T) envoy.Delta {
	return upsert(route(t, "http", "a", "b", "c"), assignment(t, "c", 1), cluster(t, "c", 1))
}

// deletion takes away what addition added.
func deletion(t *testing.T) envoy.Delta {
	d := remove(envoy.Name{Type: envoy.Cluster, Name: "c"}, envoy.Name{Type: envoy.Endpoint, Name: "c"})
	d.Upserts = []*envoy.Resource{route(t, "http", "a", "b")}
	return d
}

func TestXO1and2and5Add(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(addition(t))
		m := c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.subscribe(envoy.Endpoint, "c")
		e := c.want(envoy.Endpoint, "c")
		c.silent() // the route waits
		c.ack(e)   // an acknowledged assignment introduces its Cluster
		c.take(envoy.Route, "http")
		c.ack(m)
		c.silent() // XO-6: no Listener
	})
}

// clustersOf names the Clusters in a response that adds one to a and b.
func clustersOf(delta bool, added string) []string {
	if delta {
		return []string{added}
	}
	return []string{"a", "b", added}
}

func TestXO2ClusterAcknowledgementIntroducesToo(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(cluster(t, "c", 1), route(t, "http", "a", "b", "c"))) // no assignment
		m := c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.silent()
		c.ack(m)
		c.take(envoy.Route, "http")
	})
}

func TestXO3NewListener(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		d := addition(t)
		d.Upserts = append(d.Upserts, listener(t, "http", 9090), secret(t, "cert", "next"), extension(t, "limit", 2))
		r.publish(d)
		m := c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.take(envoy.Secret, "cert")
		c.silent()
		c.ack(m)
		rt := c.want(envoy.Route, "http")
		c.silent() // the Listener waits for the Route
		c.ack(rt)
		c.take(envoy.Listener, "http")
	})
}

func TestXO4RemovalWaitsForTheRoute(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(addition(t))
		m := c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.subscribe(envoy.Endpoint, "c")
		c.take(envoy.Endpoint, "c")
		c.ack(m)
		c.take(envoy.Route, "http")

		r.publish(deletion(t))
		rt := c.want(envoy.Route, "http")
		r.publish(upsert(cluster(t, "b", 7))) // another publish in between does not break the order
		if m := c.want(envoy.Cluster, changedOf(delta, "b")...); len(m.removed) > 0 {
			t.Fatalf("removed too early: %v", m)
		} else {
			c.ack(m)
		}
		c.take(envoy.Endpoint, "b")
		c.silent()
		c.ack(rt)
		gone := c.gone(envoy.Cluster, []string{"c"}, "a", "b")
		c.silent() // the assignment goes after its Cluster
		c.ack(gone)
		if delta {
			c.ack(c.gone(envoy.Endpoint, []string{"c"}))
		}
		c.silent()
	})
}

// changedOf names the Clusters in a response that changes one while c is about
// to go.
func changedOf(delta bool, changed string) []string {
	if delta {
		return []string{changed}
	}
	return []string{"a", "b", "c"}
}

func TestXO6AddLeavesListenersAlone(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(addition(t))
		c.subscribe(envoy.Endpoint, "c")
		var seen []envoy.Type
		for range 3 {
			m := c.any()
			seen = append(seen, m.typ)
			c.ack(m)
		}
		if !slices.Equal(seen, []envoy.Type{envoy.Cluster, envoy.Endpoint, envoy.Route}) {
			t.Errorf("order %v", seen)
		}
		c.silent()
	})
}

func TestSE05GateOpensOnNackAndAfterTheCap(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(addition(t))
		c.nack(c.want(envoy.Cluster, clustersOf(delta, "c")...), "cluster c is bad")
		c.take(envoy.Route, "http")

		capped := newRig(t, Options{GateCap: 200 * time.Millisecond}, ServerOptions{})
		capped.publish(world(t))
		c = capped.client(delta)
		c.warmUp()
		capped.publish(addition(t))
		c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.silent()
		c.take(envoy.Route, "http")
	})
}

func TestSE07SlowClusterHoldsUpNobody(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(cluster(t, "a", 5), route(t, "http", "b", "a")))
		c.want(envoy.Cluster, clusterOrAll(delta, "a", "b")...) // changed, and its answer is withheld
		c.take(envoy.Endpoint, "a")
		c.take(envoy.Route, "http") // but known: the route does not wait

		r.publish(addition(t)) // a new one meanwhile
		c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.subscribe(envoy.Endpoint, "c")
		c.take(envoy.Endpoint, "c")
		c.take(envoy.Route, "http")
	})
}

func clusterOrAll(delta bool, changed string, rest ...string) []string {
	if delta {
		return []string{changed}
	}
	return append([]string{changed}, rest...)
}

func TestSE07ClusterThatWarmsForMoreThanEndpoints(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(checked(t, "c"), assignment(t, "c", 1), route(t, "http", "a", "b", "c")))
		m := c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.subscribe(envoy.Endpoint, "c")
		c.take(envoy.Endpoint, "c")
		c.silent() // only its own acknowledgement says that it is up
		c.ack(m)
		c.take(envoy.Route, "http")
	})
}

func TestSE07ClusterThatNeverComesUp(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(checked(t, "mute"), assignment(t, "mute", 1), route(t, "http", "a", "b", "mute")))
		c.want(envoy.Cluster, clustersOf(delta, "mute")...)
		c.subscribe(envoy.Endpoint, "mute")
		c.take(envoy.Endpoint, "mute")
		c.take(envoy.Route, "http") // after the grace, long before the cap
		r.publish(upsert(cluster(t, "c", 1), assignment(t, "c", 1), route(t, "http", "a", "b", "c", "mute")))
		c.want(envoy.Cluster, append(clustersOf(delta, "c"), otherClusters(delta, "mute")...)...)
		c.subscribe(envoy.Endpoint, "c")
		c.take(envoy.Endpoint, "c")
		c.take(envoy.Route, "http") // and a new host does not wait for it any more
	})
}

// otherClusters names what a full state has besides the changed ones.
func otherClusters(delta bool, names ...string) []string {
	if delta {
		return nil
	}
	return names
}

func TestSE02AssignmentThatOvertakesItsCluster(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		for n := range new(session).window(envoy.Cluster) { // fill the window without an answer
			r.publish(upsert(cluster(t, "b", 10+n)))
			for range 2 {
				if m := c.any(); m.typ == envoy.Endpoint {
					c.ack(m)
				}
			}
		}
		first := c.last[envoy.Cluster]
		r.publish(upsert(cluster(t, "a", 2)))
		c.take(envoy.Endpoint, "a") // overtakes
		c.silent()
		c.ack(first)
		if m := c.any(); m.typ != envoy.Cluster {
			t.Fatalf("got %v", m)
		}
		c.take(envoy.Endpoint, "a") // once more, after its Cluster
	})
}

func TestSE06SecretForWarmingClusterIsNotGated(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		d := addition(t)
		d.Upserts = append(d.Upserts, secret(t, "ca", "chain"))
		r.publish(d)
		c.want(envoy.Cluster, clustersOf(delta, "c")...)
		c.subscribe(envoy.Secret, "ca")
		c.take(envoy.Secret, "ca")
	})
}

func TestReconnectKeepsClustersUntilRoutesLeftThem(t *testing.T) {
	t.Parallel()
	r, _ := loaded(t, true)
	versions := map[string]string{"old": "1"}
	for _, name := range []string{"a", "b"} {
		versions[name] = r.tables[envoy.Cluster].lookup(name).version
	}
	c := r.client(true)
	c.send(requestOf{typ: envoy.Cluster, initial: versions})
	c.subscribe(envoy.Listener)
	c.take(envoy.Listener, "http")
	c.silent() // its routes may still name the old Cluster
	c.subscribe(envoy.Route, "http")
	c.take(envoy.Route, "http")
	c.ack(c.gone(envoy.Cluster, []string{"old"}))
}
