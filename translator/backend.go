package translator

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"fairway/envoy"
	"fairway/translator/model"
)

// target is where a route ends: at a cluster, or at a status of Envoy's own.
type target struct {
	cluster string
	status  uint32
}

// backend resolves a backend to a target. What cannot be resolved answers 503
// on its own paths and is reported; it never makes a route vanish.
func (b *fragmentBuilder) backend(namespace, field string, be *networkingv1.IngressServiceBackend) target {
	ref := model.Ref{Kind: model.Service, Namespace: namespace, Name: be.Name}
	b.refer(ref)
	svc := b.src.Service(ref)
	if svc == nil {
		b.missing = true
		b.report("ServiceNotFound", model.Error, field+".name", "Service %s/%s does not exist: its paths answer 503 until it does", namespace, be.Name)
		return target{status: 503}
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return b.externalName(svc, field, be.Port)
	}
	port, ok := findPort(svc, be.Port)
	if !ok {
		b.report("PortNotFound", model.Error, field+".port", "Service %s/%s has no TCP port %s: its paths answer 503; it has %s", namespace, be.Name, portText(be.Port), portList(svc))
		return target{status: 503}
	}
	return b.cluster(clusterKey{service: ref, port: port})
}

// findPort finds the port of a Service by number or by name. The number is that
// of the Service, never a target port.
func findPort(svc *corev1.Service, want networkingv1.ServiceBackendPort) (int32, bool) {
	for _, p := range svc.Spec.Ports {
		if !usable(p) {
			continue
		}
		if want.Name != "" && p.Name == want.Name || want.Name == "" && p.Port == want.Number {
			return p.Port, true
		}
	}
	return 0, false
}

// usable reports whether HTTP can go to a port of a Service.
func usable(p corev1.ServicePort) bool {
	return (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && isPort(p.Port)
}

func isPort(number int32) bool { return number > 0 && number < 1<<16 }

func portText(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return fmt.Sprintf("%q", p.Name)
	}
	return fmt.Sprint(p.Number)
}

func portList(svc *corev1.Service) string {
	var out []string
	for _, p := range svc.Spec.Ports {
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.Name == "" {
			out = append(out, fmt.Sprintf("%d/%s", p.Port, protocol))
		} else {
			out = append(out, fmt.Sprintf("%s %d/%s", p.Name, p.Port, protocol))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// routable reports whether an endpoint may have the address. The API server
// refuses the same ones in EndpointSlices.
func routable(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && !a.IsMulticast()
}

// upstreamFor reads the application protocol of a Service port.
func upstreamFor(p *corev1.ServicePort) envoy.Upstream {
	if p == nil || p.AppProtocol == nil {
		return envoy.Upstream{}
	}
	switch strings.ToLower(*p.AppProtocol) {
	case "kubernetes.io/h2c", "h2c", "grpc":
		return envoy.Upstream{HTTP2: true}
	case "https", "wss", "kubernetes.io/wss":
		return envoy.Upstream{TLS: true}
	case "grpcs":
		return envoy.Upstream{HTTP2: true, TLS: true}
	default:
		return envoy.Upstream{}
	}
}
