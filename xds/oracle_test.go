package xds

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"fairway/envoy"
)

// baseline is go-control-plane's SnapshotCache behind its own servers: the
// oracle for what it does right, and what benchmarks compare with.
type baseline struct {
	t     testing.TB
	cache cache.SnapshotCache
	addr  string
	state map[envoy.Name]*envoy.Resource
}

func newBaseline(t testing.TB) *baseline {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &baseline{t: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil), addr: l.Addr().String(), state: map[envoy.Name]*envoy.Resource{}}
	ctx, cancel := context.WithCancel(context.Background())
	gs := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(gs, server.NewServer(ctx, b.cache, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = gs.Serve(l)
	}()
	t.Cleanup(func() {
		cancel()
		gs.Stop()
		<-done
	})
	return b
}

// publish makes a snapshot with a version per type, as a content hash.
func (b *baseline) publish(d envoy.Delta) {
	for _, n := range d.Removes {
		delete(b.state, n)
	}
	for _, res := range d.Upserts {
		b.state[res.Key()] = res
	}
	byType := map[resource.Type][]types.Resource{}
	sums := map[resource.Type]uint64{}
	for _, res := range b.state {
		m, err := res.Any.UnmarshalNew()
		if err != nil {
			b.t.Fatal(err)
		}
		byType[res.Type.URL()] = append(byType[res.Type.URL()], m)
		sums[res.Type.URL()] += contentHash(res.Name, res.Version)
	}
	snap := &cache.Snapshot{}
	for url, list := range byType {
		snap.Resources[cache.GetResponseType(url)] = cache.NewResources(fmt.Sprint(sums[url]), list)
	}
	if err := b.cache.SetSnapshot(context.Background(), "envoy-1", snap); err != nil {
		b.t.Fatal(err)
	}
}

func (b *baseline) dial() *grpc.ClientConn {
	conn, err := grpc.NewClient(b.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// view is the state of a client after a script, as text.
func view(t *testing.T, state map[envoy.Name]string) string {
	t.Helper()
	out := ""
	for _, n := range slices.SortedFunc(maps.Keys(state), func(a, b envoy.Name) int {
		if a.Type != b.Type {
			return int(a.Type) - int(b.Type)
		}
		return slices.Compare([]string{a.Name}, []string{b.Name})
	}) {
		out += fmt.Sprintf("%s %s %s\n", n.Type, n.Name, state[n])
	}
	return out
}

// drain takes and acknowledges responses until there are none, and applies them.
func (c *client) drain(state map[envoy.Name]string) {
	c.t.Helper()
	for {
		select {
		case m := <-c.in:
			c.last[m.typ] = m
			if !c.delta && fullState[m.typ] {
				maps.DeleteFunc(state, func(n envoy.Name, _ string) bool { return n.Type == m.typ })
			}
			for _, name := range m.removed {
				delete(state, envoy.Name{Type: m.typ, Name: name})
			}
			for name, body := range m.bodies {
				state[envoy.Name{Type: m.typ, Name: name}] = protojson.Format(body)
			}
			c.ack(m)
		case err := <-c.err:
			c.t.Fatal(err)
		case <-time.After(quiet):
			return
		}
	}
}

// TestOracle plays the same scripts to the library's SnapshotCache and to the
// store. The rows on which the SnapshotCache is wrong are left out.
func TestOracle(t *testing.T) {
	steps := map[string][]func(t *testing.T, c *client, publish func(envoy.Delta)){
		"warm-up (XP-01 to 07)":    {},
		"endpoints (XP-11, XP-32)": {func(t *testing.T, _ *client, publish func(envoy.Delta)) { publish(upsert(assignment(t, "a", 5))) }},
		"add and delete (XP-33)": {
			func(t *testing.T, c *client, publish func(envoy.Delta)) { publish(addition(t)) },
			func(t *testing.T, c *client, publish func(envoy.Delta)) { c.subscribe(envoy.Endpoint, "c") },
			func(t *testing.T, c *client, publish func(envoy.Delta)) { publish(deletion(t)) },
		},
		"more names (XP-18)": {func(t *testing.T, c *client, publish func(envoy.Delta)) { c.subscribe(envoy.ExtensionConfig, "limit") }},
		"appears later (XP-21)": {
			func(t *testing.T, c *client, publish func(envoy.Delta)) { publish(upsert(secret(t, "later", "x"))) },
			func(t *testing.T, c *client, publish func(envoy.Delta)) { c.subscribe(envoy.Secret, "later") },
		},
	}
	for name, script := range steps {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, delta bool) {
				ours, theirs := newRig(t, Options{}, ServerOptions{}), newBaseline(t)
				play := func(conn *grpc.ClientConn, publish func(envoy.Delta)) string {
					publish(world(t))
					c := newClient(t, conn, delta, "envoy-1")
					state := map[envoy.Name]string{}
					for typ, names := range map[envoy.Type][]string{
						envoy.Cluster: nil, envoy.Endpoint: {"a", "b"}, envoy.Listener: nil, envoy.Route: {"http"}, envoy.Secret: {"cert"},
					} {
						c.subscribe(typ, names...)
						c.drain(state)
					}
					for _, step := range script {
						step(t, c, publish)
						c.drain(state)
					}
					if len(script) == 3 { // an assignment whose Cluster is gone: Envoy drops it
						delete(state, envoy.Name{Type: envoy.Endpoint, Name: "c"})
					}
					return view(t, state)
				}
				got := play(ours.dial(), func(d envoy.Delta) { ours.publish(d) })
				want := play(theirs.dial(), theirs.publish)
				if got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}
