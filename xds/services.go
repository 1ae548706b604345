package xds

import (
	"context"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionservice "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

type (
	sotwServer  = grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	deltaServer = grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
)

// register adds all discovery services. The debug port gets none for Secrets.
func (s *Server) register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, aggregated{s})
	clusterservice.RegisterClusterDiscoveryServiceServer(r, clusters{s})
	endpointservice.RegisterEndpointDiscoveryServiceServer(r, endpoints{s})
	extensionservice.RegisterExtensionConfigDiscoveryServiceServer(r, extensionConfigs{s})
	routeservice.RegisterRouteDiscoveryServiceServer(r, routes{s})
	listenerservice.RegisterListenerDiscoveryServiceServer(r, listeners{s})
	if !s.opts.Debug {
		secretservice.RegisterSecretDiscoveryServiceServer(r, secrets{s})
	}
}

type aggregated struct{ s *Server }

func (a aggregated) StreamAggregatedResources(str sotwServer) error { return a.s.sotw(str, anyType) }
func (a aggregated) DeltaAggregatedResources(str deltaServer) error { return a.s.delta(str, anyType) }

type clusters struct{ s *Server }

func (c clusters) StreamClusters(str sotwServer) error { return c.s.sotw(str, envoy.Cluster.URL()) }
func (c clusters) DeltaClusters(str deltaServer) error { return c.s.delta(str, envoy.Cluster.URL()) }
func (c clusters) FetchClusters(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return c.s.fetch(ctx, envoy.Cluster, req)
}

type endpoints struct{ s *Server }

func (e endpoints) StreamEndpoints(str sotwServer) error { return e.s.sotw(str, envoy.Endpoint.URL()) }
func (e endpoints) DeltaEndpoints(str deltaServer) error { return e.s.delta(str, envoy.Endpoint.URL()) }
func (e endpoints) FetchEndpoints(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return e.s.fetch(ctx, envoy.Endpoint, req)
}

type secrets struct{ s *Server }

func (e secrets) StreamSecrets(str sotwServer) error { return e.s.sotw(str, envoy.Secret.URL()) }
func (e secrets) DeltaSecrets(str deltaServer) error { return e.s.delta(str, envoy.Secret.URL()) }
func (e secrets) FetchSecrets(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return e.s.fetch(ctx, envoy.Secret, req)
}

type extensionConfigs struct{ s *Server }

func (e extensionConfigs) StreamExtensionConfigs(str sotwServer) error {
	return e.s.sotw(str, envoy.ExtensionConfig.URL())
}
func (e extensionConfigs) DeltaExtensionConfigs(str deltaServer) error {
	return e.s.delta(str, envoy.ExtensionConfig.URL())
}
func (e extensionConfigs) FetchExtensionConfigs(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return e.s.fetch(ctx, envoy.ExtensionConfig, req)
}

type routes struct{ s *Server }

func (r routes) StreamRoutes(str sotwServer) error { return r.s.sotw(str, envoy.Route.URL()) }
func (r routes) DeltaRoutes(str deltaServer) error { return r.s.delta(str, envoy.Route.URL()) }
func (r routes) FetchRoutes(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return r.s.fetch(ctx, envoy.Route, req)
}

type listeners struct{ s *Server }

func (l listeners) StreamListeners(str sotwServer) error { return l.s.sotw(str, envoy.Listener.URL()) }
func (l listeners) DeltaListeners(str deltaServer) error { return l.s.delta(str, envoy.Listener.URL()) }
func (l listeners) FetchListeners(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return l.s.fetch(ctx, envoy.Listener, req)
}
