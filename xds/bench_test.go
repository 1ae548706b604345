package xds

import (
	"fmt"
	"testing"
	"time"

	"fairway/envoy"
)

// BenchmarkEndpointChange measures one endpoint change, from the publish to the
// acknowledgement of the last client, over gRPC on loopback, with ours and with
// go-control-plane's SnapshotCache in the same run. "x" is the ratio.
func BenchmarkEndpointChange(b *testing.B) {
	for _, clusters := range []int{1000, 10000} {
		for _, streams := range []int{1, 10} {
			b.Run(fmt.Sprintf("clusters=%d/streams=%d", clusters, streams), func(b *testing.B) {
				ours := newRig(b, Options{}, ServerOptions{})
				fast := measure(b, clusters, streams, b.N, ours.client, func(d envoy.Delta) { ours.publish(d) })
				theirs := newBaseline(b)
				slow := measure(b, clusters, streams, min(b.N, 20), func(delta bool) *client {
					return newClient(b, theirs.dial(), delta, "envoy-1")
				}, theirs.publish)
				b.ReportMetric(float64(fast.Microseconds()), "µs/change")
				b.ReportMetric(float64(slow.Microseconds()), "µs/change-snapshot")
				b.ReportMetric(float64(slow)/float64(fast), "x")
			})
		}
	}
}

// measure returns the mean time of n changes.
func measure(b *testing.B, clusters, streams, n int, connect func(delta bool) *client, publish func(envoy.Delta)) time.Duration {
	names, d := large(b, clusters)
	publish(d)
	var all []*client
	for range streams {
		c := connect(true)
		c.subscribe(envoy.Cluster)
		c.take(envoy.Cluster, names...)
		c.subscribe(envoy.Endpoint, names...)
		c.take(envoy.Endpoint, names...)
		all = append(all, c)
	}
	b.ResetTimer()
	start := time.Now()
	for i := range n {
		name := names[i%len(names)]
		publish(upsert(assignment(b, name, 11+i%60000)))
		for _, c := range all {
			c.take(envoy.Endpoint, name)
		}
	}
	b.StopTimer()
	return time.Since(start) / time.Duration(n)
}

// BenchmarkPublish measures a publish when no client can receive: the price that
// the publisher pays.
func BenchmarkPublish(b *testing.B) {
	for _, streams := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			s := NewStore(Options{})
			names, d := large(b, 1000)
			s.Publish(d, time.Time{})
			for range streams {
				st := s.open(true, true, false)
				st.session.subscribe(envoy.Endpoint, subscription{wildcard: true}, 1)
			}
			changes := []envoy.Delta{upsert(assignment(b, names[0], 1)), upsert(assignment(b, names[0], 2))}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				s.Publish(changes[n%2], time.Time{})
			}
		})
	}
}
