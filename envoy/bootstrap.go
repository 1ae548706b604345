package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	xdsCluster   = "fairway-xds"
	adminCluster = "fairway-admin"

	maxHeapBytes           = 2 << 30
	maxConnections         = 50_000
	maxListenerConnections = 10_000
	pingInterval           = 30 * time.Second
	pingTimeout            = 5 * time.Second

	maxRegexProgramSize = 5_000 // RE2 program units; Envoy's default of 100 refuses ordinary patterns
)

// BootstrapFile is the name of the file that Envoy is started with.
const BootstrapFile = "envoy.json"

// BootstrapOptions are what an Envoy must know before it reaches the control
// plane.
type BootstrapOptions struct {
	NodeID       string // unique among the Envoys; required
	NodeCluster  string // default "fairway"
	XDSAddress   string // HOST:PORT of the control plane; required
	XDSTLSDir    string // tls.crt, tls.key, ca.crt, re-read on change; empty: plaintext
	AdminSocket  string // path of the admin's unix socket; or
	AdminAddress string // HOST:PORT of the admin, for development
	Dir          string // the directory that the files are written to; required with XDSTLSDir
	StatsAddress string // HOST:PORT that answers /ready and /stats/prometheus and nothing else; empty: none
}

// Bootstrap returns the files of an Envoy bootstrap by name: Envoy is started
// with BootstrapFile, which refers to the others by the directory they are
// written to. They are JSON, which Envoy reads from .json and .yaml files alike.
func Bootstrap(o BootstrapOptions) (map[string][]byte, error) {
	b, err := bootstrap(o)
	if err != nil {
		return nil, err
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	messages := map[string]proto.Message{BootstrapFile: b}
	if o.XDSTLSDir != "" {
		messages[certificateFile] = secretFile(xdsCertificate(o.XDSTLSDir))
		messages[authorityFile] = secretFile(xdsAuthority(o))
	}
	files := map[string][]byte{}
	for name, m := range messages {
		if files[name], err = encodeJSON(m); err != nil {
			return nil, fmt.Errorf("bootstrap: %s: %w", name, err)
		}
	}
	return files, nil
}

func encodeJSON(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its white space on purpose.
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func bootstrap(o BootstrapOptions) (*bootstrapv3.Bootstrap, error) {
	if o.NodeID == "" {
		return nil, fmt.Errorf("the node id is empty")
	}
	if o.XDSTLSDir != "" && o.Dir == "" {
		return nil, fmt.Errorf("a bootstrap with TLS consists of several files: the directory for them is missing")
	}
	if o.NodeCluster == "" {
		o.NodeCluster = "fairway"
	}
	xds, err := xdsClusterFor(o)
	if err != nil {
		return nil, err
	}
	admin, err := adminAddress(o)
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{
		Node:  &corev3.Node{Id: o.NodeID, Cluster: o.NodeCluster},
		Admin: &bootstrapv3.Admin{Address: admin},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: adsConfig(),
			LdsConfig: bootstrapADS(),
			CdsConfig: bootstrapADS(),
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{xds}},
		LayeredRuntime:  runtimeLayers(),
		OverloadManager: overloadManager(),
		StatsConfig:     statsConfig(),
	}
	if o.StatsAddress != "" {
		l, err := statsListener(o.StatsAddress)
		if err != nil {
			return nil, err
		}
		b.StaticResources.Listeners = []*listenerv3.Listener{l}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, staticCluster(adminCluster, admin))
	}
	return b, nil
}

// adsConfig asks for the incremental protocol: one NACK instead of a loop of
// them, one resource on the wire instead of all, and small acknowledgements.
func adsConfig() *corev3.ApiConfigSource {
	return &corev3.ApiConfigSource{
		ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
		TransportApiVersion: corev3.ApiVersion_V3,
		// The node lists every extension of the binary: 61 kB in each ACK.
		SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: xdsCluster},
		}}},
	}
}

// bootstrapADS waits for Clusters and Listeners without a limit: an Envoy that
// has not got them must not report ready.
func bootstrapADS() *corev3.ConfigSource {
	s := adsSource()
	s.InitialFetchTimeout = durationpb.New(0)
	return s
}

func xdsClusterFor(o BootstrapOptions) (*clusterv3.Cluster, error) {
	host, port, err := splitAddress("xds address", o.XDSAddress)
	if err != nil {
		return nil, err
	}
	c := staticCluster(xdsCluster, socketAddress(host, port))
	if net.ParseIP(host) == nil {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	}
	// A control plane that vanished without a reset is noticed by the pings.
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpProtocolOptions: xdsProtocol()}
	if o.XDSTLSDir != "" {
		c.TransportSocket = xdsTLS(o.Dir, host)
	}
	return c, nil
}

func staticCluster(name string, address *corev3.Address) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(connectTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}}}},
		}}},
	}
}

func adminAddress(o BootstrapOptions) (*corev3.Address, error) {
	if o.AdminSocket != "" {
		return pipeAddress(o.AdminSocket, 0o600), nil
	}
	return boundAddress("admin address", o.AdminAddress)
}

// boundAddress reads an address that Envoy listens on: it takes no host names
// there.
func boundAddress(what, address string) (*corev3.Address, error) {
	host, port, err := splitAddress(what, address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return nil, fmt.Errorf("%s %q: %q is not an IP address", what, address, host)
	}
	return socketAddress(host, port), nil
}

func splitAddress(what, address string) (string, uint32, error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%s %q: want HOST:PORT", what, address)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil || port == 0 || host == "" || strings.ContainsAny(host, " /") {
		return "", 0, fmt.Errorf("%s %q: want HOST:PORT with a port from 1 to 65535", what, address)
	}
	return host, uint32(port), nil
}

// statsListener gives probes and scrapers two pages of the admin interface and
// nothing else of it.
func statsListener(address string) (*listenerv3.Listener, error) {
	bound, err := boundAddress("stats address", address)
	if err != nil {
		return nil, err
	}
	var routes []*routev3.Route
	for _, path := range []string{"/ready", "/stats/prometheus"} {
		m := MatchExact(path)
		m.Headers = []*routev3.HeaderMatcher{{Name: ":method", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "GET"}},
		}}}
		routes = append(routes, Forward(path, m, adminCluster))
	}
	return &listenerv3.Listener{
		Name:    "stats",
		Address: bound,
		DefaultFilterChain: &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
			Name: "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(&hcmv3.HttpConnectionManager{
				StatPrefix:  "stats",
				HttpFilters: []*hcmv3.HttpFilter{router()},
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
					Name: "stats", VirtualHosts: []*routev3.VirtualHost{{Name: "stats", Domains: []string{"*"}, Routes: routes}},
				}},
			})},
		}}},
		IgnoreGlobalConnLimit: true,
		BypassOverloadManager: true,
	}, nil
}

func runtimeLayers() *bootstrapv3.LayeredRuntime {
	values := map[string]float64{
		"re2.max_program_size.error_level":                                  maxRegexProgramSize,
		"re2.max_program_size.warn_level":                                   maxRegexProgramSize,
		"http.max_requests_per_io_cycle":                                    1, // against rapid reset, CVE-2023-44487
		"envoy.resource_limits.listener." + HTTPName + ".connection_limit":  maxListenerConnections,
		"envoy.resource_limits.listener." + HTTPSName + ".connection_limit": maxListenerConnections,
	}
	layer := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range values {
		layer.Fields[k] = structpb.NewNumberValue(v)
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name: "static", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: layer},
	}}}
}

// overloadManager gives memory back, then refuses requests, before the process
// is killed for its memory.
func overloadManager() *overloadv3.OverloadManager {
	const heap = "envoy.resource_monitors.fixed_heap"
	action := func(name string, at float64) *overloadv3.OverloadAction {
		return &overloadv3.OverloadAction{Name: name, Triggers: []*overloadv3.Trigger{{
			Name: heap, TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: at}},
		}}}
	}
	return &overloadv3.OverloadManager{
		RefreshInterval: durationpb.New(250 * time.Millisecond),
		ResourceMonitors: []*overloadv3.ResourceMonitor{
			resourceMonitor(heap, mustAny(&heapv3.FixedHeapConfig{MaxHeapSizeBytes: maxHeapBytes})),
			resourceMonitor("envoy.resource_monitors.global_downstream_max_connections",
				mustAny(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: maxConnections})),
		},
		Actions: []*overloadv3.OverloadAction{
			action("envoy.overload_actions.shrink_heap", 0.95),
			action("envoy.overload_actions.stop_accepting_requests", 0.98),
		},
	}
}

func resourceMonitor(name string, config *anypb.Any) *overloadv3.ResourceMonitor {
	return &overloadv3.ResourceMonitor{Name: name, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: config}}
}

// statsConfig keeps, of the statistics of each cluster, those that answer
// questions about a Service. All of them would take more memory than the
// cluster itself.
func statsConfig() *metricsv3.StatsConfig {
	var keep []*matcherv3.StringMatcher
	for _, p := range []string{"server.", "listener", "http.", "cluster_manager.", "control_plane.", "overload.", "runtime.", "cluster." + xdsCluster} {
		keep = append(keep, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: p}})
	}
	for _, s := range []string{
		".upstream_rq_total", ".upstream_rq_2xx", ".upstream_rq_3xx", ".upstream_rq_4xx", ".upstream_rq_5xx",
		".upstream_rq_active", ".upstream_rq_retry", ".upstream_cx_active", ".upstream_cx_connect_fail", ".upstream_cx_none_healthy",
		".membership_total", ".membership_healthy", ".init_fetch_timeout", ".assignment_use_cached", ".update_rejected",
	} {
		keep = append(keep, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: s}})
	}
	return &metricsv3.StatsConfig{StatsMatcher: &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{
		InclusionList: &matcherv3.ListStringMatcher{Patterns: keep},
	}}}
}

// xdsProtocol is HTTP/2 with pings.
func xdsProtocol() *anypb.Any {
	return mustAny(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
					Interval: durationpb.New(pingInterval), Timeout: durationpb.New(pingTimeout),
				}},
			},
		},
	}})
}
