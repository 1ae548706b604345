package xds

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionservice "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"fairway/envoy"
)

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

type fetcher func(context.Context, *discoveryv3.DiscoveryRequest, ...grpc.CallOption) (*discoveryv3.DiscoveryResponse, error)

func fetchers(conn *grpc.ClientConn) [envoy.NumTypes]fetcher {
	return [envoy.NumTypes]fetcher{
		envoy.Cluster:         clusterservice.NewClusterDiscoveryServiceClient(conn).FetchClusters,
		envoy.Endpoint:        endpointservice.NewEndpointDiscoveryServiceClient(conn).FetchEndpoints,
		envoy.Secret:          secretservice.NewSecretDiscoveryServiceClient(conn).FetchSecrets,
		envoy.ExtensionConfig: extensionservice.NewExtensionConfigDiscoveryServiceClient(conn).FetchExtensionConfigs,
		envoy.Route:           routeservice.NewRouteDiscoveryServiceClient(conn).FetchRoutes,
		envoy.Listener:        listenerservice.NewListenerDiscoveryServiceClient(conn).FetchListeners,
	}
}

func TestXP48Fetch(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	counts := [envoy.NumTypes]int{2, 2, 1, 1, 1, 1}
	for typ, fetch := range fetchers(r.dial()) {
		first, err := fetch(deadline(t), &discoveryv3.DiscoveryRequest{}) // without a node
		if err != nil {
			t.Fatal(err)
		}
		again, err := fetch(deadline(t), &discoveryv3.DiscoveryRequest{VersionInfo: first.GetVersionInfo()})
		if err != nil || len(first.GetResources()) != counts[typ] || len(again.GetResources()) != counts[typ] {
			t.Errorf("%s: %d and %d resources, %v", envoy.Type(typ), len(first.GetResources()), len(again.GetResources()), err)
		}
		if first.GetTypeUrl() != envoy.Type(typ).URL() || first.GetVersionInfo() == "" {
			t.Errorf("got %s %q", first.GetTypeUrl(), first.GetVersionInfo())
		}
	}
	one, err := fetchers(r.dial())[envoy.Cluster](deadline(t), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"b", "none"}})
	if err != nil || len(one.GetResources()) != 1 || nameOf(one.GetResources()[0]) != "b" {
		t.Errorf("by name: %v, %v", one, err)
	}
}

func TestServicesForOneType(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	conn := r.dial()
	ctx := deadline(t)
	sotwStreams := []func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error){
		envoy.Cluster: func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error) {
			return clusterservice.NewClusterDiscoveryServiceClient(conn).StreamClusters(ctx)
		},
		envoy.Endpoint: func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error) {
			return endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
		},
		envoy.Secret: func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error) {
			return secretservice.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx)
		},
		envoy.ExtensionConfig: func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error) {
			return extensionservice.NewExtensionConfigDiscoveryServiceClient(conn).StreamExtensionConfigs(ctx)
		},
		envoy.Route: func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error) {
			return routeservice.NewRouteDiscoveryServiceClient(conn).StreamRoutes(ctx)
		},
		envoy.Listener: func() (grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], error) {
			return listenerservice.NewListenerDiscoveryServiceClient(conn).StreamListeners(ctx)
		},
	}
	for typ, open := range sotwStreams {
		c, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(&discoveryv3.DiscoveryRequest{}); err != nil { // the type is implied
			t.Fatal(err)
		}
		m, err := c.Recv()
		if err != nil || m.GetTypeUrl() != envoy.Type(typ).URL() || len(m.GetResources()) == 0 {
			t.Errorf("%s: %v, %v", envoy.Type(typ), m, err)
		}
	}
	d, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Recv(); err != nil || len(m.GetResources()) != 1 {
		t.Errorf("delta: %v, %v", m, err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	h := healthv1.NewHealthClient(r.dial())
	check := func() healthv1.HealthCheckResponse_ServingStatus {
		m, err := h.Check(deadline(t), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return m.GetStatus()
	}
	if got := check(); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("before the first publish: %v", got)
	}
	r.publish(world(t))
	eventually(t, "serving", func() bool { return check() == healthv1.HealthCheckResponse_SERVING })
}

func TestXP47Reflection(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	conn := r.dial()
	c, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		t.Helper()
		if err := c.Send(req); err != nil {
			t.Fatal(err)
		}
		m, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	services := fmt.Sprint(ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}))
	if !containsAll(services, "AggregatedDiscoveryService", "ClusterDiscoveryService", "SecretDiscoveryService", "ClientStatusDiscoveryService", "ExtensionConfigDiscoveryService", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection") {
		t.Errorf("services %s", services)
	}
	for _, symbol := range []string{
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "envoy.extensions.filters.http.router.v3.Router",
		"envoy.extensions.filters.http.filter_chain.v3.FilterChainConfig", "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
		"envoy.extensions.filters.http.rbac.v3.RBACPerRoute", "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
		"envoy.extensions.filters.http.stateful_session.v3.StatefulSession", "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate", "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
		"envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig", "envoy.extensions.clusters.dns.v3.DnsCluster",
		"xds.type.matcher.v3.Matcher", "xds.type.matcher.v3.ServerNameMatcher", "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
		"envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
		"envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation", "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig",
		"envoy.extensions.matching.common_inputs.network.v3.ServerNameInput", "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
		"envoy.extensions.filters.common.matcher.action.v3.SkipFilter", "google.protobuf.StringValue",
	} {
		m := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
		if m.GetErrorResponse() != nil {
			t.Errorf("%s: %v", symbol, m.GetErrorResponse())
		}
	}
}

// TestDebugPort asks the port for people in every way for the Secret.
func TestDebugPortShowsNoKeys(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		nacked := false
		r := newRig(t, Options{OnNack: func(Nack) { nacked = true }}, ServerOptions{})
		r.publish(world(t))
		debug := r.beside(ServerOptions{Debug: true})
		conn := debug.dial()
		if _, err := fetchers(conn)[envoy.Secret](deadline(t), &discoveryv3.DiscoveryRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("there is a service for Secrets: %v", err)
		}
		if _, err := fetchers(conn)[envoy.Cluster](deadline(t), &discoveryv3.DiscoveryRequest{TypeUrl: envoy.Secret.URL()}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Secrets by another service: %v", err)
		}
		c := debug.client(delta)
		for _, names := range [][]string{nil, {"cert"}} {
			c = debug.client(delta)
			c.subscribe(envoy.Secret, names...)
			m := c.want(envoy.Secret, "cert")
			text := protojson.Format(m.bodies["cert"])
			if strings.Contains(text, "very-secret") || !containsAll(text, redactedText, "chain") {
				t.Errorf("got %s", text)
			}
			c.nack(m, "no")
		}
		r.publish(upsert(secret(t, "cert", "next")))
		c.take(envoy.Secret, "cert") // a person's NACK parks nothing
		if nacked || len(r.Streams()) != 0 {
			t.Error("a person counts as an Envoy")
		}
		real := r.client(delta)
		real.subscribe(envoy.Secret, "cert")
		if text := protojson.Format(real.want(envoy.Secret, "cert").bodies["cert"]); !strings.Contains(text, "very-secret") {
			t.Error("Envoys get no key")
		}
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{Store: NewStore(Options{}), t: t, addr: l.Addr().String()}
		if published {
			r.publish(world(t))
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- NewServer(r.Store, ServerOptions{}).Serve(ctx, l) }()
		c := r.client(true)
		c.subscribe(envoy.Cluster)
		if published {
			c.take(envoy.Cluster, "a", "b")
		}
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("serve does not end")
		}
	}
}

func TestReceiveLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	c := r.client(true)
	c.subscribe(envoy.Endpoint, append(many(strings.Repeat("n", 200), 50000), "a")...) // 10 MiB
	m := c.any()
	if !slices.Equal(m.names(), []string{"a"}) || len(m.removed) != 50000 {
		t.Errorf("got %d resources, %d removed", len(m.bodies), len(m.removed))
	}
}

func TestPanicEndsOneStream(t *testing.T) {
	t.Parallel()
	s := NewServer(NewStore(Options{}), ServerOptions{})
	defer s.stop()
	s.store.Publish(world(t), time.Time{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := s.serve(&loopback{ctx: ctx}, true, anyType, func(context.Context, *stream) error { panic("a trap of the library") })
	if status.Code(err) != codes.Internal || len(s.store.streams) != 0 {
		t.Errorf("%v, %d streams left", err, len(s.store.streams))
	}
}

func TestFetchWaitsForTheFirstPublish(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	fetch := fetchers(r.dial())[envoy.Cluster]
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	if _, err := fetch(ctx, &discoveryv3.DiscoveryRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}
