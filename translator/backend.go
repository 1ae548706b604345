package translator

import (
	"fmt"
	"net/netip"
	"regexp"
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
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		if want.Name != "" && p.Name == want.Name || want.Name == "" && p.Port == want.Number {
			return p.Port, true
		}
	}
	return 0, false
}

func portText(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return fmt.Sprintf("%q", p.Name)
	}
	return fmt.Sprint(p.Number)
}

func portList(svc *corev1.Service) string {
	var out []string
	for _, p := range svc.Spec.Ports {
		if p.Name == "" {
			out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		} else {
			out = append(out, fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// externalName resolves a Service that stands for a host name.
func (b *fragmentBuilder) externalName(svc *corev1.Service, field string, want networkingv1.ServiceBackendPort) target {
	refused := target{status: 503}
	if !b.config.ExternalName {
		b.report("ExternalNameDisabled", model.Error, field+".name", "Service %s/%s is of type ExternalName, which is not enabled here: its paths answer 503", svc.Namespace, svc.Name)
		return refused
	}
	if err := checkExternalName(svc.Spec.ExternalName, b.config.OwnNamespace); err != nil {
		b.report("ExternalNameRefused", model.Error, field+".name", "Service %s/%s: %v: its paths answer 503", svc.Namespace, svc.Name, err)
		return refused
	}
	port, ok := findPort(svc, want)
	if !ok && len(svc.Spec.Ports) == 0 && want.Number != 0 {
		port, ok = want.Number, true
	}
	if !ok {
		b.report("PortNotFound", model.Error, field+".port", "Service %s/%s has no TCP port %s: its paths answer 503", svc.Namespace, svc.Name, portText(want))
		return refused
	}
	return b.cluster(clusterKey{service: model.Ref{Kind: model.Service, Namespace: svc.Namespace, Name: svc.Name}, port: port})
}

var numericLabel = regexp.MustCompile(`^(0[xX][0-9a-fA-F]*|[0-9]+)$`)

// checkExternalName refuses names that lead to Envoy's own machine, to the
// cloud's metadata or to Fairway itself, in any spelling that a resolver takes.
// What a name of the outside resolves to cannot be seen here.
func checkExternalName(name, own string) error {
	host := strings.ToLower(strings.TrimSuffix(name, "."))
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	switch {
	case host == "":
		return fmt.Errorf("the external name is empty")
	case last == "localhost" || last == "localdomain" || strings.Contains(labels[0], "localhost"):
		return fmt.Errorf("the external name %q means the proxy itself", name)
	case own != "" && len(labels) >= 2 && labels[1] == own && (len(labels) == 2 || labels[2] == "svc"):
		return fmt.Errorf("the external name %q points into Fairway's own namespace", name)
	case !numericLabel.MatchString(last):
		return nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("the external name %q is neither a host name nor an address", name)
	}
	if !routable(addr) {
		return fmt.Errorf("the external name %q is a loopback or link-local address", name)
	}
	return nil
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
