package envoy

import (
	"net"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

const (
	connectTimeout      = 5 * time.Second  // proxy-connect-timeout of ingress-nginx
	upstreamIdleTimeout = 60 * time.Second // upstream-keepalive-timeout of ingress-nginx
	bufferLimit         = 32 << 10         // per connection, Envoy's advice for edge proxies

	// fetchTimeout bounds how long a cluster or a filter chain warms when what
	// it asked for is not answered. 0 would mean for ever.
	fetchTimeout = 2 * time.Second

	httpProtocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

// Upstream says how a cluster speaks to its endpoints.
type Upstream struct {
	HTTP2 bool // HTTP/2 with prior knowledge instead of HTTP/1.1
	TLS   bool // TLS whose certificate is not verified, as ingress-nginx does by default
}

// EDSCluster builds a cluster whose endpoints come in the load assignment of
// the same name.
func EDSCluster(name string, up Upstream) *clusterv3.Cluster {
	c := cluster(name, up)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource()}
	return c
}

// DNSCluster builds a cluster whose endpoints are the addresses that a host
// name resolves to. It has no load assignment resource.
func DNSCluster(name string, up Upstream, host string, port uint32) *clusterv3.Cluster {
	c := cluster(name, up)
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dns",
		TypedConfig: mustAny(&dnsv3.DnsCluster{
			RespectDnsTtl:   true,
			DnsLookupFamily: commondnsv3.DnsLookupFamily_V4_PREFERRED,
		}),
	}}
	c.WaitForWarmOnInit = wrapperspb.Bool(false)
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{lbEndpoint(host, port)}}},
	}
	if up.TLS {
		c.TransportSocket = upstreamTLS(up, sni(host))
	}
	return c
}

// sni returns the host as TLS names it: without the final dot, and never
// an address.
func sni(host string) string {
	if net.ParseIP(host) != nil {
		return ""
	}
	return strings.TrimSuffix(host, ".")
}

func cluster(name string, up Upstream) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                          name,
		AltStatName:                   statName(name),
		ConnectTimeout:                durationpb.New(connectTimeout),
		LbPolicy:                      clusterv3.Cluster_ROUND_ROBIN,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		CircuitBreakers:               noCircuitBreakers(),
		IgnoreHealthOnHostRemoval:     true,
		// Panic mode would send requests to endpoints that are not ready. The
		// merge window would delay changes of health and weight.
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: 0},
			UpdateMergeWindow:     durationpb.New(0),
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpProtocolOptions: protocolOptions(up)},
	}
	if up.TLS {
		c.TransportSocket = upstreamTLS(up, "")
	}
	return c
}

// noCircuitBreakers lifts Envoy's default limits of 1024 connections, pending
// requests and requests, which nginx does not have.
func noCircuitBreakers() *clusterv3.CircuitBreakers {
	unlimited := wrapperspb.UInt32(1<<32 - 1)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: unlimited, MaxPendingRequests: unlimited, MaxRequests: unlimited, MaxRetries: unlimited,
	}}}
}

func protocolOptions(up Upstream) *anypb.Any {
	explicit := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
	}
	if up.HTTP2 {
		explicit.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}
	}
	return mustAny(&httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:     durationpb.New(upstreamIdleTimeout),
			MaxHeadersCount: wrapperspb.UInt32(maxHeaders), // an answer with more is a 502
		},
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit},
	})
}

func upstreamTLS(up Upstream, sni string) *corev3.TransportSocket {
	alpn := "http/1.1"
	if up.HTTP2 {
		alpn = "h2"
	}
	return transportSocket(&tlsv3.UpstreamTlsContext{
		Sni:              sni,
		CommonTlsContext: &tlsv3.CommonTlsContext{AlpnProtocols: []string{alpn}},
	})
}

// adsSource says that a resource comes on the aggregated stream.
func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(fetchTimeout),
	}
}
