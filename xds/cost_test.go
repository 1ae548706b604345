package xds

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"fairway/envoy"
)

// loopback is a gRPC server stream without a network: the client is the test.
type loopback struct {
	ctx    context.Context
	in     chan *discoveryv3.DeltaDiscoveryRequest
	frames chan frame
}

func (l *loopback) Context() context.Context     { return l.ctx }
func (l *loopback) SetHeader(metadata.MD) error  { return nil }
func (l *loopback) SendHeader(metadata.MD) error { return nil }
func (l *loopback) SetTrailer(metadata.MD)       {}
func (l *loopback) SendMsg(m any) error {
	l.frames <- m.(frame)
	return nil
}

func (l *loopback) RecvMsg(m any) error {
	select {
	case r := <-l.in:
		to := m.(*discoveryv3.DeltaDiscoveryRequest)
		to.Node, to.TypeUrl, to.ResponseNonce = r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce()
		to.ResourceNamesSubscribe, to.InitialResourceVersions = r.GetResourceNamesSubscribe(), r.GetInitialResourceVersions()
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (l *loopback) ask(typ envoy.Type, initial map[string]string, names ...string) {
	l.in <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ.URL(), ResourceNamesSubscribe: names, InitialResourceVersions: initial}
}

func (l *loopback) ack(t testing.TB, typ envoy.Type) {
	f := <-l.frames
	head := &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(f[0].ReadOnlyData(), head); err != nil || head.GetTypeUrl() != typ.URL() {
		t.Fatalf("got %v, %v", head, err)
	}
	l.in <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: head.GetTypeUrl(), ResponseNonce: head.GetNonce()}
}

// dialLoopback runs a delta ADS stream of s on a loopback.
func dialLoopback(t testing.TB, s *Server) *loopback {
	ctx, cancel := context.WithCancel(context.Background())
	l := &loopback{ctx: ctx, in: make(chan *discoveryv3.DeltaDiscoveryRequest), frames: make(chan frame, 10)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.delta(l, anyType)
	}()
	t.Cleanup(func() {
		cancel()
		s.stop()
		<-done
	})
	return l
}

// large is a world of n Clusters with ten endpoints each.
func large(t testing.TB, n int) (names []string, d envoy.Delta) {
	names = many("namespace/service-", n)
	for _, name := range names {
		d.Upserts = append(d.Upserts, cluster(t, name, 1), assignment(t, name, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
	}
	return names, d
}

func (l *loopback) load(t testing.TB, names []string) {
	l.in <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.Cluster.URL(), Node: &corev3.Node{Id: "n"}}
	l.ack(t, envoy.Cluster)
	l.ask(envoy.Endpoint, nil, names...)
	l.ack(t, envoy.Endpoint)
}

// costPerChange publishes endpoint changes to streams that have everything.
func costPerChange(t testing.TB, clusters, streams int) (allocs, bytes float64) {
	s := NewStore(Options{})
	names, d := large(t, clusters)
	s.Publish(d, time.Now())
	server := NewServer(s, ServerOptions{})
	var all []*loopback
	for range streams {
		l := dialLoopback(t, server)
		l.load(t, names)
		all = append(all, l)
	}
	const changes = 200
	var versions []envoy.Delta
	for n := range changes {
		versions = append(versions, upsert(assignment(t, names[n%len(names)], 11+n, 2, 3, 4, 5, 6, 7, 8, 9, 10)))
	}
	change := func(n int) {
		s.Publish(versions[n], time.Now())
		for _, l := range all {
			l.ack(t, envoy.Endpoint)
		}
	}
	change(0)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := 1; n < changes; n++ {
		change(n)
	}
	runtime.ReadMemStats(&after)
	per := float64((changes - 1) * streams)
	return float64(after.Mallocs-before.Mallocs) / per, float64(after.TotalAlloc-before.TotalAlloc) / per
}

func TestCostOfAnEndpointChange(t *testing.T) {
	thousand, thousandBytes := costPerChange(t, 1000, 1)
	allocs, bytes := costPerChange(t, 10000, 1)
	t.Logf("per change, one stream: %.0f allocations, %.0f B at 1,000 Clusters; %.0f, %.0f B at 10,000", thousand, thousandBytes, allocs, bytes)
	if allocs > 100 || bytes > 8<<10 {
		t.Errorf("%.0f allocations, %.0f B", allocs, bytes)
	}
	if allocs > 1.3*thousand || bytes > 1.3*thousandBytes {
		t.Error("the cost grows with the number of Clusters")
	}
}

func TestSE18CostPerStream(t *testing.T) {
	thousand, _ := costPerChange(t, 1000, 100)
	ten, _ := costPerChange(t, 10000, 100)
	t.Logf("per change and stream, 100 streams: %.1f and %.1f allocations", thousand, ten)
	// The loopback client makes some of them.
	if thousand > 40 || ten > 1.3*thousand {
		t.Errorf("%.1f allocations at 1,000 Clusters, %.1f at 10,000", thousand, ten)
	}
}

// counter counts the bytes of gRPC messages.
type counter struct{ down, up atomic.Int64 }

func (c *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *counter) HandleConn(context.Context, stats.ConnStats)                       {}
func (c *counter) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.InPayload:
		c.down.Add(int64(s.Length))
	case *stats.OutPayload:
		c.up.Add(int64(s.Length))
	}
}

func TestWireOfAnEndpointChange(t *testing.T) {
	r := newRig(t, Options{}, ServerOptions{})
	names, d := large(t, 1000)
	r.publish(d)
	var count counter
	c := newClient(t, r.dial(grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&count)), true, "n")
	c.subscribe(envoy.Cluster)
	c.take(envoy.Cluster, names...)
	c.subscribe(envoy.Endpoint, names...)
	c.take(envoy.Endpoint, names...)
	count.down.Store(0)
	count.up.Store(0)
	size := int64(0)
	const changes = 100
	for n := range changes {
		res := assignment(t, names[n], 11, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		size += int64(proto.Size(res.Any))
		r.publish(upsert(res))
		c.take(envoy.Endpoint, names[n])
	}
	extra, up := (count.down.Load()-size)/changes, count.up.Load()/changes
	t.Logf("per change: %d B assignment, %d B more down, %d B up", size/changes, extra, up)
	if extra > 128 || up > 200 {
		t.Errorf("%d B more than the assignment down, %d B up", extra, up)
	}
}

// bigNode is a node as Envoy sends it, with extensions and features.
func bigNode() *corev3.Node {
	n := &corev3.Node{Id: "envoy", Cluster: "edge", UserAgentName: "envoy", Metadata: &structpb.Struct{}}
	for i := range 600 {
		n.Extensions = append(n.Extensions, &corev3.Extension{Name: fmt.Sprint("envoy.filters.http.some_extension_", i), Category: "envoy.filters.http", TypeUrls: []string{fmt.Sprint("envoy.extensions.filters.http.some.v3.Extension", i)}})
	}
	return n
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestSE17HeapPerStream(t *testing.T) {
	s := NewStore(Options{})
	names, d := large(t, 10000)
	s.Publish(d, time.Now())
	clusters, assignments := map[string]string{}, map[string]string{}
	for _, name := range names {
		clusters[name] = s.tables[envoy.Cluster].lookup(name).version
		assignments[name] = s.tables[envoy.Endpoint].lookup(name).version
	}
	const streams = 20
	for _, test := range []struct {
		name      string
		reconnect bool
	}{{"cold", false}, {"reconnect", true}} {
		t.Run(test.name, func(t *testing.T) {
			server := NewServer(s, ServerOptions{})
			base := heap()
			var all []*loopback
			for range streams {
				l := dialLoopback(t, server)
				all = append(all, l)
				first := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.Cluster.URL(), Node: bigNode()}
				if test.reconnect {
					first.InitialResourceVersions = clusters
				}
				l.in <- first
				if test.reconnect {
					l.ask(envoy.Endpoint, assignments, names...)
					l.ask(envoy.Listener, nil)
					l.ack(t, envoy.Listener)
					continue
				}
				l.ack(t, envoy.Cluster)
				l.ask(envoy.Endpoint, nil, names...)
				l.ack(t, envoy.Endpoint)
				l.ask(envoy.Listener, nil)
				l.ack(t, envoy.Listener)
			}
			per := (heap() - base) / streams / 1024
			t.Logf("%d KiB per stream", per)
			if per > 110 {
				t.Errorf("%d KiB per stream", per)
			}
			runtime.KeepAlive(all)
		})
	}
}

// TestSE19 publishes while many streams load everything: no publish may wait
// for all of them. It compares counts, not times.
func TestSE19PublishDuringAStorm(t *testing.T) {
	r := newRig(t, Options{}, ServerOptions{})
	names, d := large(t, 5000)
	r.publish(d)
	early := r.client(true)
	early.subscribe(envoy.Endpoint, names[0])
	early.take(envoy.Endpoint, names[0])
	const streams = 40
	var loaded atomic.Int64
	for range streams {
		c := r.client(true)
		c.subscribe(envoy.Cluster)
		c.subscribe(envoy.Endpoint, names...)
		go func() {
			for range 2 {
				select {
				case <-c.in:
				case <-c.err:
				}
			}
			loaded.Add(1)
		}()
	}
	during := 0
	for n := 0; loaded.Load() < streams && n < 10000; n++ {
		r.publish(upsert(assignment(t, names[0], 11+n)))
		early.take(envoy.Endpoint, names[0])
		if loaded.Load() < streams {
			during++
		}
	}
	t.Logf("%d changes were acknowledged during the storm", during)
	if during < 3 {
		t.Errorf("only %d changes were acknowledged during the storm", during)
	}
}

func TestSE20ClientsThatDoNotRead(t *testing.T) {
	r := newRig(t, Options{}, ServerOptions{})
	names, d := large(t, 200)
	r.publish(d)
	var stuck, healthy []*client
	for n := range 70 {
		c := r.client(n%2 == 0)
		if n < 20 {
			c.subscribe(envoy.Endpoint, names...)
			stuck = append(stuck, c)
			continue
		}
		c.subscribe(envoy.Endpoint, names[0])
		c.take(envoy.Endpoint, names[0])
		healthy = append(healthy, c)
	}
	publish := func(from, to int) {
		for n := from; n < to; n++ {
			r.publish(upsert(assignment(t, names[n%len(names)], 11+n)))
		}
		r.publish(upsert(assignment(t, names[0], 9000+to)))
		for _, c := range healthy {
			for {
				m := c.any()
				c.ack(m)
				if slices.Contains(m.names(), names[0]) && m.bodies[names[0]].String() == assignment(t, names[0], 9000+to).Any.String() {
					break
				}
			}
		}
	}
	publish(0, 200)
	before := heap()
	publish(200, 2200)
	grown := (heap() - before) / 1024
	t.Logf("the heap grew by %d KiB", grown)
	if grown > 4096 {
		t.Errorf("the heap grew by %d KiB", grown)
	}
	for _, c := range stuck {
		c.cancel()
	}
}
