package xds

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

// sotwStream is the gRPC stream as the library's state-of-the-world server sees
// it.
type sotwStream struct {
	grpc.ServerStream
	st      *stream
	typeURL string // of a service for one type
}

// Recv implements the library's stream.
func (s *sotwStream) Recv() (*discoveryv3.DiscoveryRequest, error) {
	m, err := s.st.receive(s.ServerStream, func() any { return new(discoveryv3.DiscoveryRequest) }, s.forward)
	if err != nil {
		return nil, err
	}
	return m.(*discoveryv3.DiscoveryRequest), nil
}

// forward drops requests that answer an older response than the last one: the
// client sends another when it has seen that. Their answer counts all the same.
func (s *sotwStream) forward(message any) bool {
	m := message.(*discoveryv3.DiscoveryRequest)
	if m.GetTypeUrl() == "" {
		m.TypeUrl = s.typeURL
	}
	m.Node = s.st.introduceNode(m.GetNode())
	sub := subscription{names: m.GetResourceNames(), version: m.GetVersionInfo()}
	m.ResourceNames = placeholder(sub.names)
	t, ok := envoy.TypeOf(m.GetTypeUrl())
	if !ok {
		return true
	}
	nonce := m.GetResponseNonce()
	s.st.answer(t, nonce, m.GetErrorDetail() != nil, m.GetErrorDetail().GetMessage())
	return s.st.holdCurrent(request{key: m, typ: t, sub: sub}, nonce)
}

// Send implements the library's stream. The library has numbered the message.
func (s *sotwStream) Send(m *discoveryv3.DiscoveryResponse) error {
	return s.st.send(s.ServerStream, m.GetNonce())
}

// CreateWatch implements cache.ConfigWatcher.
func (st *stream) CreateWatch(req *cache.Request, sub cache.Subscription, ch chan cache.Response) (func(), error) {
	return st.watch(req, sub.IsWildcard(), func(r *response) bool {
		select {
		case ch <- &sotwResponse{st, req, r}:
			return true
		default:
			return false
		}
	})
}

// sotwResponse hands a decided response through the library. The message that
// the library sees carries the nonce only.
type sotwResponse struct {
	st  *stream
	req *cache.Request
	r   *response
}

var _ cache.Response = (*sotwResponse)(nil)

// GetDiscoveryResponse is called right before Send, on the same goroutine. The
// message is fresh because the library writes the nonce into it.
func (s *sotwResponse) GetDiscoveryResponse() (*discoveryv3.DiscoveryResponse, error) {
	s.st.current = s.r
	return &discoveryv3.DiscoveryResponse{}, nil
}

func (s *sotwResponse) GetRequest() *discoveryv3.DiscoveryRequest { return s.req }
func (s *sotwResponse) GetVersion() (string, error)               { return s.r.version, nil }
func (s *sotwResponse) GetResponseVersion() string                { return s.r.version }

// GetReturnedResources returns an empty map: the session keeps the state.
func (s *sotwResponse) GetReturnedResources() map[string]string { return map[string]string{} }
func (s *sotwResponse) GetContext() context.Context             { return context.Background() }
