package xds

import (
	"context"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

// The library keeps for every stream what requests say. It gets one constant
// name in place of all names, which is enough for its wildcard rules.
var (
	noNames      []string
	someNames    = []string{"-"}
	wildcard     = []string{"*"}
	someWildcard = []string{"-", "*"}
)

// placeholder returns what stands for the names of a request.
func placeholder(names []string) []string {
	all := slices.Contains(names, "*")
	switch {
	case len(names) == 0:
		return noNames
	case !all:
		return someNames
	case len(names) == 1:
		return wildcard
	default:
		return someWildcard
	}
}

// trimNode keeps what identifies an Envoy. The full node is 60 kB, and the
// library keeps it as long as the stream lives.
func trimNode(n *corev3.Node) *corev3.Node {
	if n == nil {
		return nil
	}
	return &corev3.Node{
		Id: n.GetId(), Cluster: n.GetCluster(), Locality: n.GetLocality(), Metadata: n.GetMetadata(),
		UserAgentName: n.GetUserAgentName(), UserAgentVersionType: n.GetUserAgentVersionType(),
	}
}

// introduceNode takes the node of the first request that carries one.
func (st *stream) introduceNode(n *corev3.Node) *corev3.Node {
	n = trimNode(n)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.node == nil {
		st.node = n
	}
	return n
}

// deltaStream is the gRPC stream as the library's delta server sees it.
type deltaStream struct {
	grpc.ServerStream
	st      *stream
	typeURL string // of a service for one type
}

// Recv implements the library's stream.
func (d *deltaStream) Recv() (*discoveryv3.DeltaDiscoveryRequest, error) {
	m, err := d.st.receive(d.ServerStream, func() any { return new(discoveryv3.DeltaDiscoveryRequest) }, d.forward)
	if err != nil {
		return nil, err
	}
	return m.(*discoveryv3.DeltaDiscoveryRequest), nil
}

// forward takes a request apart: the answer that it carries counts at once, the
// subscription when the library comes back with the request, and the library
// keeps only what its rules need.
func (d *deltaStream) forward(message any) bool {
	m := message.(*discoveryv3.DeltaDiscoveryRequest)
	if m.GetTypeUrl() == "" {
		m.TypeUrl = d.typeURL
	}
	m.Node = d.st.introduceNode(m.GetNode())
	sub := subscription{
		subscribe:   m.GetResourceNamesSubscribe(),
		unsubscribe: m.GetResourceNamesUnsubscribe(),
		initial:     m.GetInitialResourceVersions(),
	}
	m.ResourceNamesSubscribe = placeholder(sub.subscribe)
	m.ResourceNamesUnsubscribe = nil
	if slices.Contains(sub.unsubscribe, "*") {
		m.ResourceNamesUnsubscribe = wildcard
	}
	m.InitialResourceVersions = nil
	t, ok := envoy.TypeOf(m.GetTypeUrl())
	if !ok {
		return true
	}
	d.st.answer(t, m.GetResponseNonce(), m.GetErrorDetail() != nil, m.GetErrorDetail().GetMessage())
	d.st.hold(request{key: m, typ: t, sub: sub})
	return true
}

// Send implements the library's stream. The library has numbered the message.
func (d *deltaStream) Send(m *discoveryv3.DeltaDiscoveryResponse) error {
	return d.st.send(d.ServerStream, m.GetNonce())
}

// CreateDeltaWatch implements cache.ConfigWatcher.
func (st *stream) CreateDeltaWatch(req *cache.DeltaRequest, sub cache.Subscription, ch chan cache.DeltaResponse) (func(), error) {
	return st.watch(req, sub.IsWildcard(), func(r *response) bool {
		select {
		case ch <- &deltaResponse{st, req, r}:
			return true
		default:
			return false
		}
	})
}

// deltaResponse hands a decided response through the library. The message that
// the library sees carries the nonce only.
type deltaResponse struct {
	st  *stream
	req *cache.DeltaRequest
	r   *response
}

var _ cache.DeltaResponse = (*deltaResponse)(nil)

// GetDeltaDiscoveryResponse is called right before Send, on the same goroutine. The
// message is fresh because the library writes the nonce into it.
func (d *deltaResponse) GetDeltaDiscoveryResponse() (*discoveryv3.DeltaDiscoveryResponse, error) {
	d.st.current = d.r
	return &discoveryv3.DeltaDiscoveryResponse{}, nil
}

func (d *deltaResponse) GetDeltaRequest() *discoveryv3.DeltaDiscoveryRequest { return d.req }
func (d *deltaResponse) GetSystemVersion() (string, error)                   { return d.r.version, nil }
func (d *deltaResponse) GetResponseVersion() string                          { return d.r.version }

// GetNextVersionMap returns an empty map of its own: the session keeps the state,
// and the library writes into the map.
func (d *deltaResponse) GetNextVersionMap() map[string]string    { return map[string]string{} }
func (d *deltaResponse) GetReturnedResources() map[string]string { return map[string]string{} }
func (d *deltaResponse) GetContext() context.Context             { return context.Background() }
