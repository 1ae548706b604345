package xds

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"fairway/envoy"
)

// fetch answers a unary request with the current state, whatever version the
// client has: all resources of the type, or those that it names. The node is
// optional.
func (s *Server) fetch(ctx context.Context, t envoy.Type, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	if err := s.awaitReady(ctx); err != nil {
		return nil, err
	}
	if url := req.GetTypeUrl(); url != "" && url != t.URL() {
		return nil, status.Errorf(codes.InvalidArgument, "this method serves %s", t.URL())
	}
	all, version := s.store.snapshot(t)
	names := req.GetResourceNames()
	out := &discoveryv3.DiscoveryResponse{TypeUrl: t.URL(), VersionInfo: version}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, res := range all {
		if len(names) == 0 || wanted[res.Name] || wanted["*"] {
			out.Resources = append(out.Resources, s.visible(res))
		}
	}
	return out, nil
}

// visible returns the resource as this server may show it.
func (s *Server) visible(res *envoy.Resource) *anypb.Any {
	if s.opts.Debug {
		return envoy.Redact(res).Any
	}
	return res.Any
}
