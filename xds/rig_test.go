package xds

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairway/envoy"
)

// patience bounds every wait for something that has to happen; quiet is how
// long something must not happen.
const (
	patience = 10 * time.Second
	quiet    = 120 * time.Millisecond
)

func encode(t testing.TB, typ envoy.Type, name string, m proto.Message) *envoy.Resource {
	t.Helper()
	res, err := envoy.Encode(typ, name, m, "Ingress test/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// cluster makes an EDS Cluster; another timeout makes another version.
func cluster(t testing.TB, name string, timeout int) *envoy.Resource {
	return encode(t, envoy.Cluster, name, &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		ConnectTimeout:       durationpb.New(time.Duration(timeout) * time.Second),
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	})
}

func assignment(t testing.TB, name string, ports ...int) *envoy.Resource {
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	if len(ports) > 0 {
		cla.Endpoints = []*endpointv3.LocalityLbEndpoints{{}}
	}
	for _, port := range ports {
		cla.Endpoints[0].LbEndpoints = append(cla.Endpoints[0].LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
				}},
			}}},
		})
	}
	return encode(t, envoy.Endpoint, name, cla)
}

// route makes a RouteConfiguration with one virtual host per Cluster.
func route(t testing.TB, name string, clusters ...string) *envoy.Resource {
	rc := &routev3.RouteConfiguration{Name: name}
	for _, c := range clusters {
		rc.VirtualHosts = append(rc.VirtualHosts, &routev3.VirtualHost{
			Name: c, Domains: []string{c + ".test"},
			Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: c}}},
			}},
		})
	}
	return encode(t, envoy.Route, name, rc)
}

func listener(t testing.TB, name string, port uint32) *envoy.Resource {
	return encode(t, envoy.Listener, name, &listenerv3.Listener{Name: name, Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}},
	}})
}

const privateKey = "-----BEGIN PRIVATE KEY-----very-secret-----END PRIVATE KEY-----"

func secret(t testing.TB, name, chain string) *envoy.Resource {
	source := func(s string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
	}
	return encode(t, envoy.Secret, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: source(chain), PrivateKey: source(privateKey)},
	}})
}

func extension(t testing.TB, name string, limit uint32) *envoy.Resource {
	a, err := anypb.New(&bufferv3.Buffer{MaxRequestBytes: wrapperspb.UInt32(limit)})
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, envoy.ExtensionConfig, name, &corev3.TypedExtensionConfig{Name: name, TypedConfig: a})
}

// world is a small complete configuration: Clusters a and b, one route table,
// one listener, one Secret, one extension config.
func world(t testing.TB) envoy.Delta {
	return envoy.Delta{Upserts: []*envoy.Resource{
		cluster(t, "a", 1), cluster(t, "b", 1), assignment(t, "a", 1), assignment(t, "b", 1),
		route(t, "http", "a", "b"), listener(t, "http", 8080), secret(t, "cert", "chain"), extension(t, "limit", 1),
	}}
}

func upsert(res ...*envoy.Resource) envoy.Delta { return envoy.Delta{Upserts: res} }

func remove(names ...envoy.Name) envoy.Delta { return envoy.Delta{Removes: names} }

// rig is a store behind a real gRPC server.
type rig struct {
	*Store
	t      testing.TB
	server *Server
	addr   string
}

func newRig(t testing.TB, o Options, so ServerOptions) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Store: NewStore(o), t: t, addr: l.Addr().String()}
	r.server = NewServer(r.Store, so)
	r.serve(r.server, l)
	return r
}

func (r *rig) serve(s *Server, l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("serve: %v", err)
		}
	})
}

// beside starts a second server on the same store.
func (r *rig) beside(so ServerOptions) *rig {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	other := &rig{Store: r.Store, t: r.t, addr: l.Addr().String(), server: NewServer(r.Store, so)}
	other.serve(other.server, l)
	return other
}

func (r *rig) publish(d envoy.Delta) uint64 { return r.Publish(d, time.Now()) }

func (r *rig) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	if len(opts) == 0 {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	opts = append(opts, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	conn, err := grpc.NewClient(r.addr, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// message is a response of either protocol.
type message struct {
	typ            envoy.Type
	version, nonce string
	bodies         map[string]*anypb.Any
	versions       map[string]string // delta
	removed        []string
}

func (m message) names() []string {
	out := make([]string, 0, len(m.bodies))
	for name := range m.bodies {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (m message) String() string {
	return fmt.Sprintf("%s +%v -%v nonce %s", m.typ, m.names(), m.removed, m.nonce)
}

// client is a raw discovery client of either protocol.
type client struct {
	t      testing.TB
	delta  bool
	sotwC  grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	deltaC grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	in     chan message
	err    chan error
	cancel context.CancelFunc
	node   *corev3.Node // sent with the first request
	names  [envoy.NumTypes][]string
	have   [envoy.NumTypes]string // version last accepted (SotW)
	last   [envoy.NumTypes]message
}

func (r *rig) client(delta bool) *client { return newClient(r.t, r.dial(), delta, "envoy-1") }

func newClient(t testing.TB, conn *grpc.ClientConn, delta bool, node string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{
		t: t, delta: delta, cancel: cancel, in: make(chan message, 1000), err: make(chan error, 1),
		node: &corev3.Node{Id: node, Cluster: "edge"},
	}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	var err error
	if delta {
		c.deltaC, err = ads.DeltaAggregatedResources(ctx)
	} else {
		c.sotwC, err = ads.StreamAggregatedResources(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.read()
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

func (c *client) read() {
	for {
		m, err := c.receive()
		if err != nil {
			c.err <- err
			return
		}
		c.in <- m
	}
}

func (c *client) receive() (message, error) {
	if c.delta {
		m, err := c.deltaC.Recv()
		return fromDelta(m), err
	}
	m, err := c.sotwC.Recv()
	return fromSotw(m), err
}

func fromDelta(m *discoveryv3.DeltaDiscoveryResponse) message {
	t, _ := envoy.TypeOf(m.GetTypeUrl())
	out := message{typ: t, version: m.GetSystemVersionInfo(), nonce: m.GetNonce(), removed: m.GetRemovedResources(), bodies: map[string]*anypb.Any{}, versions: map[string]string{}}
	slices.Sort(out.removed)
	for _, r := range m.GetResources() {
		out.bodies[r.GetName()] = r.GetResource()
		out.versions[r.GetName()] = r.GetVersion()
	}
	return out
}

func fromSotw(m *discoveryv3.DiscoveryResponse) message {
	t, _ := envoy.TypeOf(m.GetTypeUrl())
	out := message{typ: t, version: m.GetVersionInfo(), nonce: m.GetNonce(), bodies: map[string]*anypb.Any{}}
	for _, a := range m.GetResources() {
		out.bodies[nameOf(a)] = a
	}
	return out
}

func nameOf(a *anypb.Any) string {
	m, err := a.UnmarshalNew()
	if err != nil {
		return err.Error()
	}
	switch m := m.(type) {
	case *endpointv3.ClusterLoadAssignment:
		return m.GetClusterName()
	case interface{ GetName() string }:
		return m.GetName()
	}
	return ""
}

// request is one request in terms of both protocols.
type requestOf struct {
	typ         envoy.Type
	url         string // instead of typ
	names       []string
	unsubscribe []string
	nonce       string
	nack        string
	initial     map[string]string
	version     *string
}

func (c *client) send(r requestOf) {
	c.t.Helper()
	url := r.url
	if url == "" {
		url = r.typ.URL()
	}
	var detail *rpcstatus.Status
	if r.nack != "" {
		detail = &rpcstatus.Status{Code: 3, Message: r.nack}
	}
	var err error
	if c.delta {
		err = c.deltaC.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node: c.node, TypeUrl: url, ResourceNamesSubscribe: r.names, ResourceNamesUnsubscribe: r.unsubscribe,
			ResponseNonce: r.nonce, ErrorDetail: detail, InitialResourceVersions: r.initial,
		})
	} else {
		version := c.have[r.typ]
		if r.version != nil {
			version = *r.version
		}
		err = c.sotwC.Send(&discoveryv3.DiscoveryRequest{
			Node: c.node, TypeUrl: url, ResourceNames: r.names, ResponseNonce: r.nonce, ErrorDetail: detail, VersionInfo: version,
		})
	}
	c.node = nil
	if err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// subscribe adds names to the subscription; without any it asks for everything.
func (c *client) subscribe(t envoy.Type, names ...string) {
	c.t.Helper()
	c.names[t] = append(c.names[t], names...)
	if c.delta {
		c.send(requestOf{typ: t, names: names})
		return
	}
	c.send(requestOf{typ: t, names: c.names[t], nonce: c.last[t].nonce})
}

func (c *client) ack(m message) {
	c.t.Helper()
	c.have[m.typ] = m.version
	c.answer(m, "")
}

func (c *client) nack(m message, text string) {
	c.t.Helper()
	c.answer(m, text)
}

func (c *client) answer(m message, nack string) {
	c.t.Helper()
	r := requestOf{typ: m.typ, nonce: m.nonce, nack: nack}
	if !c.delta {
		r.names = c.names[m.typ]
	}
	c.send(r)
}

// any waits for the next response, whatever its type.
func (c *client) any() message {
	c.t.Helper()
	select {
	case m := <-c.in:
		c.last[m.typ] = m
		return m
	case err := <-c.err:
		c.t.Fatalf("stream ended: %v", err)
	case <-time.After(patience):
		c.t.Fatal("no response")
	}
	return message{}
}

// want waits for the next response, which has to be of the type and carry
// exactly the names.
func (c *client) want(t envoy.Type, names ...string) message {
	c.t.Helper()
	m := c.any()
	slices.Sort(names)
	if m.typ != t || !slices.Equal(m.names(), names) && len(m.names())+len(names) > 0 {
		c.t.Fatalf("got %v, want %s %v", m, t, names)
	}
	return m
}

// take is want followed by the acknowledgement.
func (c *client) take(t envoy.Type, names ...string) message {
	c.t.Helper()
	m := c.want(t, names...)
	c.ack(m)
	return m
}

// gone waits for a response that removes exactly the names. In SotW the
// full-state response carries what is left.
func (c *client) gone(t envoy.Type, names []string, left ...string) message {
	c.t.Helper()
	if !c.delta {
		return c.want(t, left...)
	}
	m := c.want(t)
	if !slices.Equal(m.removed, names) {
		c.t.Fatalf("got %v, want removed %v", m, names)
	}
	return m
}

func (c *client) silent() {
	c.t.Helper()
	select {
	case m := <-c.in:
		c.t.Fatalf("unexpected response: %v", m)
	case err := <-c.err:
		c.t.Fatalf("stream ended: %v", err)
	case <-time.After(quiet):
	}
}

// alive fails if the stream has ended, and shows that it still serves.
func (c *client) alive() {
	c.t.Helper()
	c.subscribe(envoy.ExtensionConfig, "limit")
	c.take(envoy.ExtensionConfig, "limit")
}

// warmUp loads the whole of world.
func (c *client) warmUp() {
	c.t.Helper()
	c.subscribe(envoy.Cluster)
	c.take(envoy.Cluster, "a", "b")
	c.subscribe(envoy.Endpoint, "a", "b")
	c.take(envoy.Endpoint, "a", "b")
	c.subscribe(envoy.Listener)
	c.take(envoy.Listener, "http")
	c.subscribe(envoy.Route, "http")
	c.take(envoy.Route, "http")
	c.subscribe(envoy.Secret, "cert")
	c.take(envoy.Secret, "cert")
}

// both runs a test for both protocols.
func both(t *testing.T, f func(t *testing.T, delta bool)) {
	t.Parallel()
	for _, delta := range []bool{true, false} {
		t.Run(protocolName(delta), func(t *testing.T) {
			t.Parallel()
			f(t, delta)
		})
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func many(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return out
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

// checked makes a Cluster with active health checks.
func checked(t testing.TB, name string) *envoy.Resource {
	c := &clusterv3.Cluster{}
	if err := cluster(t, name, 1).Any.UnmarshalTo(c); err != nil {
		t.Fatal(err)
	}
	c.HealthChecks = []*corev3.HealthCheck{{
		Timeout: durationpb.New(time.Second), Interval: durationpb.New(time.Second),
		UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1),
		HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
	}}
	return encode(t, envoy.Cluster, name, c)
}
