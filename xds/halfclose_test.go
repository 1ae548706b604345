package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

// oneCall sends a request per type without names, closes its side at once and
// returns the number of resources per type, as a command-line client does.
func oneCall(t *testing.T, conn *grpc.ClientConn, delta bool, types ...envoy.Type) map[envoy.Type]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	got := map[envoy.Type]int{}
	var receive func() (message, error)
	var err error
	if delta {
		c, e := ads.DeltaAggregatedResources(ctx)
		for n, typ := range types {
			e = errors.Join(e, c.Send(&discoveryv3.DeltaDiscoveryRequest{Node: firstNode(n), TypeUrl: typ.URL()}))
		}
		err = errors.Join(e, c.CloseSend())
		receive = func() (message, error) { m, err := c.Recv(); return fromDelta(m), err }
	} else {
		c, e := ads.StreamAggregatedResources(ctx)
		for n, typ := range types {
			e = errors.Join(e, c.Send(&discoveryv3.DiscoveryRequest{Node: firstNode(n), TypeUrl: typ.URL()}))
		}
		err = errors.Join(e, c.CloseSend())
		receive = func() (message, error) { m, err := c.Recv(); return fromSotw(m), err }
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := receive()
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got[m.typ] += len(m.bodies)
	}
}

func firstNode(n int) *corev3.Node {
	if n > 0 {
		return nil
	}
	return &corev3.Node{Id: "me"}
}

func TestSE12andXP45and49HalfClose(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		d := world(t)
		d.Upserts = append(d.Upserts[:6:6], d.Upserts[7:]...) // no Secret
		r.publish(d)
		conn := r.dial()
		for n := range 100 {
			if got := oneCall(t, conn, delta, envoy.Endpoint); got[envoy.Endpoint] != 2 {
				t.Fatalf("call %d: %v", n, got)
			}
		}
		for n := range 30 {
			got := oneCall(t, conn, delta, envoy.Listener, envoy.Cluster, envoy.Endpoint, envoy.Route)
			if want := fmt.Sprint(map[envoy.Type]int{envoy.Listener: 1, envoy.Cluster: 2, envoy.Endpoint: 2, envoy.Route: 1}); fmt.Sprint(got) != want {
				t.Fatalf("four types, call %d: %v", n, got)
			}
			if got := oneCall(t, conn, delta, envoy.Secret); len(got) != 1 {
				t.Fatalf("a type without resources, call %d: no answer", n)
			}
		}
	})
}
