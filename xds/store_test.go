package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairway/envoy"
)

func TestPublishAndResources(t *testing.T) {
	s := NewStore(Options{})
	if s.Ready() {
		t.Error("ready before the first publish")
	}
	if g := s.Publish(world(t), time.Time{}); g != 1 || !s.Ready() {
		t.Errorf("generation %d, ready %v", g, s.Ready())
	}
	if g := s.Publish(upsert(assignment(t, "a", 9)), time.Time{}); g != 2 {
		t.Errorf("generation %d", g)
	}
	got := s.Resources(envoy.Endpoint)
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Fatalf("got %v", got)
	}
	want := assignment(t, "a", 9)
	if got[0].Version != want.Version || !proto.Equal(got[0].Any, want.Any) || fmt.Sprint(got[0].Owners) != "[Ingress test/a]" {
		t.Errorf("got %v", got[0])
	}
	s.Publish(remove(envoy.Name{Type: envoy.Endpoint, Name: "a"}, envoy.Name{Type: envoy.Endpoint, Name: "never"}), time.Time{})
	if got := s.Resources(envoy.Endpoint); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestOwnersFollowWithoutAPush(t *testing.T) {
	s := NewStore(Options{})
	s.Publish(world(t), time.Time{})
	before := s.tables[envoy.Cluster].lookup("a")
	again := *cluster(t, "a", 1)
	again.Owners = []string{"Ingress other/x"}
	s.Publish(upsert(&again), time.Time{})
	if s.tables[envoy.Cluster].lookup("a") != before {
		t.Error("equal content became another item")
	}
	if got := s.Resources(envoy.Cluster)[0].Owners[0]; got != "Ingress other/x" {
		t.Errorf("owner %s", got)
	}
}

func TestAssignmentVersionMixesItsCluster(t *testing.T) {
	version := func(publishes ...envoy.Delta) string {
		s := NewStore(Options{})
		for _, d := range publishes {
			s.Publish(d, time.Time{})
		}
		return s.tables[envoy.Endpoint].lookup("a").version
	}
	one := version(upsert(cluster(t, "a", 1), assignment(t, "a", 1)))
	for name, other := range map[string]string{
		"the other way round": version(upsert(assignment(t, "a", 1)), upsert(cluster(t, "a", 1))),
		"after another":       version(upsert(cluster(t, "a", 2), assignment(t, "a", 1)), upsert(cluster(t, "a", 1))),
		"removed and added":   version(upsert(cluster(t, "a", 1), assignment(t, "a", 1)), remove(envoy.Name{Type: envoy.Cluster, Name: "a"}), upsert(cluster(t, "a", 1))),
	} {
		if other != one {
			t.Errorf("%s: %s, want %s", name, other, one)
		}
	}
	if version(upsert(cluster(t, "a", 2), assignment(t, "a", 1))) == one {
		t.Error("another Cluster, but the same version")
	}
	if bare := version(upsert(assignment(t, "a", 1))); bare != assignment(t, "a", 1).Version {
		t.Errorf("without a Cluster: %s", bare)
	}
}

func TestVersionIsAFunctionOfTheContent(t *testing.T) {
	version := func(publishes ...envoy.Delta) string {
		s := NewStore(Options{})
		for _, d := range publishes {
			s.Publish(d, time.Time{})
		}
		_, v := s.snapshot(envoy.Cluster)
		return v
	}
	want := version(upsert(cluster(t, "a", 1), cluster(t, "b", 1)))
	detour := version(upsert(cluster(t, "c", 1), cluster(t, "b", 2)), upsert(cluster(t, "b", 1), cluster(t, "a", 1)), remove(envoy.Name{Type: envoy.Cluster, Name: "c"}))
	if want != detour {
		t.Errorf("%s and %s for the same content", want, detour)
	}
}

// TestFrames compares the hand-made encoding with the library's.
func TestFrames(t *testing.T) {
	s := NewStore(Options{})
	s.Publish(world(t), time.Time{})
	it := s.tables[envoy.Cluster].lookup("a")
	r := &response{typ: envoy.Cluster, version: "v", nonce: "7", items: []*item{it}, removed: []removal{{1, "x"}}}
	want := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: envoy.Cluster.URL(), Nonce: "7", RemovedResources: []string{"x"},
		Resources: []*discoveryv3.Resource{{Name: "a", Version: it.version, Resource: cluster(t, "a", 1).Any}},
	}
	got := &discoveryv3.DeltaDiscoveryResponse{}
	decode(t, r.encode(true, false), got)
	if !proto.Equal(got, want) {
		t.Errorf("delta: got %v, want %v", got, want)
	}
	full := &discoveryv3.DiscoveryResponse{}
	decode(t, r.encode(false, false), full)
	if !proto.Equal(full, &discoveryv3.DiscoveryResponse{VersionInfo: "v", TypeUrl: envoy.Cluster.URL(), Nonce: "7", Resources: []*anypb.Any{cluster(t, "a", 1).Any}}) {
		t.Errorf("sotw: got %v", full)
	}
}

func decode(t *testing.T, f frame, m proto.Message) {
	t.Helper()
	var b []byte
	for _, part := range f {
		b = append(b, part.ReadOnlyData()...)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
}

func TestNamed(t *testing.T) {
	for text, want := range map[string]bool{
		"cluster shop/web/80: bad":            true,
		"shop/web/80":                         true,
		"bad shop/web/80.":                    true,
		"bad shop/web/80.x":                   false,
		"bad shop/web/8080":                   false,
		"bad my-shop/web/80":                  false,
		"shop/web/8080 and then shop/web/80,": true,
		"bad shop/web/80..x":                  false,
		"bad éshop/web/80é":                   true,
		"bad .shop/web/80":                    false,
		"nothing":                             false,
	} {
		if got := len(named([]*item{{name: "shop/web/80"}}, text)) == 1; got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// An Envoy may name all of many resources; everybody waits until its text is read.
func BenchmarkNamed(b *testing.B) {
	var items []*item
	var text strings.Builder
	for i := range 10_000 {
		items = append(items, &item{name: fmt.Sprintf("shop/web-%d/80", i)})
		fmt.Fprintf(&text, "shop/web-%d/80: it cannot be used for some reason; ", i)
	}
	for b.Loop() {
		if len(named(items, text.String())) != len(items) {
			b.Fatal("not all are found")
		}
	}
}

func TestSlowClusters(t *testing.T) {
	s := NewStore(Options{})
	s.Publish(upsert(cluster(t, "a", 1), checked(t, "b")), time.Time{})
	if s.tables[envoy.Cluster].lookup("a").slow || !s.tables[envoy.Cluster].lookup("b").slow {
		t.Error("active health checks are not recognised")
	}
}
