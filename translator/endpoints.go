package translator

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// addresses returns the endpoints of one Service port in the order of their
// addresses: those that are ready, or where none is, those that still serve
// while they terminate.
func addresses(svc *corev1.Service, port *corev1.ServicePort, slicesOf []*discoveryv1.EndpointSlice, loopback bool) []netip.AddrPort {
	var ready, serving []netip.AddrPort
	for _, s := range slicesOf {
		if !wantedFamily(svc, s.AddressType) {
			continue
		}
		for _, number := range portNumbers(s, port.Name) {
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				a, ok := address(e, number, loopback)
				switch {
				case !ok:
				case isTrue(e.Conditions.Ready, true):
					ready = append(ready, a)
				case isTrue(e.Conditions.Serving, true) && isTrue(e.Conditions.Terminating, false):
					serving = append(serving, a)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready) // the same address may stand in several slices
}

// isTrue reads a condition whose absence has a meaning.
func isTrue(condition *bool, absent bool) bool {
	if condition == nil {
		return absent
	}
	return *condition
}

// wantedFamily skips slices of host names and those of an address family that
// the Service does not have.
func wantedFamily(svc *corev1.Service, t discoveryv1.AddressType) bool {
	if t == discoveryv1.AddressTypeFQDN {
		return false
	}
	return len(svc.Spec.IPFamilies) == 0 || slices.Contains(svc.Spec.IPFamilies, corev1.IPFamily(t))
}

// portNumbers returns the numbers that a slice gives the named port: one, as a
// rule, but pods may expose one name under different numbers in other slices.
func portNumbers(s *discoveryv1.EndpointSlice, name string) []int32 {
	var out []int32
	for _, p := range s.Ports {
		tcp := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		named := p.Name == nil && name == "" || p.Name != nil && *p.Name == name
		if tcp && named && p.Port != nil && isPort(*p.Port) {
			out = append(out, *p.Port)
		}
	}
	return out
}

// address reads the first address of an endpoint; the API gives the others no
// meaning.
func address(e *discoveryv1.Endpoint, port int32, loopback bool) (netip.AddrPort, bool) {
	if len(e.Addresses) == 0 {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddr(e.Addresses[0])
	if err != nil || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	if !routable(a) && !(loopback && a.IsLoopback()) {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(port)), true
}
