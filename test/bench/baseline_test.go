package bench

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
	"fairway/test/rig"
	"fairway/translator"
	"fairway/watcher"
)

const baselineNode = "baseline"

// startBaseline serves one namespace the way the README of go-control-plane
// shows: after each change a new snapshot of everything, with one version, in a
// SnapshotCache in ADS mode. Watching and translating are Fairway's, so that
// the difference is the serving.
func startBaseline(b *testing.B, kube *rig.Kube, namespace string, config translator.Config) (address string) {
	b.Helper()
	queue := watcher.NewQueue(50*time.Millisecond, 500*time.Millisecond)
	w, err := watcher.New(watcher.Options{Client: kube.Client, Queue: queue, Logger: slog.New(slog.DiscardHandler), Namespaces: []string{namespace}})
	if err != nil {
		b.Fatal(err)
	}
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	listener, err := net.Listen("tcp", rig.Loopback(b))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	grpcServer := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(grpcServer, server.NewServer(ctx, snapshots, nil))
	b.Cleanup(func() { cancel(); grpcServer.Stop() })
	go func() { _ = w.Run(ctx) }()
	go func() { _ = grpcServer.Serve(listener) }()
	go func() {
		t := translator.New(config)
		for version := 1; ; version++ {
			dirty, _, err := queue.Take(ctx)
			if err != nil {
				return
			}
			t.Apply(w.Source(), dirty)
			snapshot, err := cache.NewSnapshot(strconv.Itoa(version), byType(b, t.Resources()))
			if err == nil {
				err = snapshots.SetSnapshot(ctx, baselineNode, snapshot)
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		}
	}()
	return listener.Addr().String()
}

func byType(b *testing.B, resources []*envoy.Resource) map[resource.Type][]types.Resource {
	out := map[resource.Type][]types.Resource{}
	for _, r := range resources {
		m, err := r.Any.UnmarshalNew()
		if err != nil {
			b.Error(err)
			continue
		}
		out[r.Type.URL()] = append(out[r.Type.URL()], m)
	}
	return out
}
