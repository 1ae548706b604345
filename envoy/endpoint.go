package envoy

import (
	"net/netip"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// LoadAssignment builds the endpoints of a cluster. No addresses give an
// explicit empty assignment: leaving it out would keep the old endpoints in
// use. Weights stay unset, which means 1; Envoy refuses 0.
func LoadAssignment(cluster string, addresses []netip.AddrPort) *endpointv3.ClusterLoadAssignment {
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if len(addresses) == 0 {
		return cla
	}
	cla.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: lbEndpoints(addresses)}}
	return cla
}

func lbEndpoints(addresses []netip.AddrPort) []*endpointv3.LbEndpoint {
	out := make([]*endpointv3.LbEndpoint, len(addresses))
	for i, a := range addresses {
		out[i] = lbEndpoint(a.Addr().String(), uint32(a.Port()))
	}
	return out
}

func lbEndpoint(host string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: socketAddress(host, port)},
	}}
}
