package translator

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"fairway/translator/model"
)

// externalName resolves a Service that stands for a host name.
func (b *fragmentBuilder) externalName(svc *corev1.Service, field string, want networkingv1.ServiceBackendPort) target {
	refused := target{status: 503}
	if err := b.config.checkExternalName(svc); err != nil {
		reason := "ExternalNameRefused"
		if errors.Is(err, errExternalNameOff) {
			reason = "ExternalNameDisabled"
		}
		b.report(reason, model.Error, field+".name", "Service %s/%s: %v: its paths answer 503", svc.Namespace, svc.Name, err)
		return refused
	}
	port, ok := findPort(svc, want)
	if !ok && len(svc.Spec.Ports) == 0 && isPort(want.Number) {
		port, ok = want.Number, true
	}
	if !ok {
		b.report("PortNotFound", model.Error, field+".port", "Service %s/%s has no TCP port %s: its paths answer 503; it has %s", svc.Namespace, svc.Name, portText(want), portList(svc))
		return refused
	}
	return b.cluster(clusterKey{service: model.Ref{Kind: model.Service, Namespace: svc.Namespace, Name: svc.Name}, port: port})
}

var errExternalNameOff = errors.New("type ExternalName is not enabled here")

// checkExternalName returns why a Service of type ExternalName is not served.
func (c *Config) checkExternalName(svc *corev1.Service) error {
	if !c.ExternalName {
		return errExternalNameOff
	}
	return checkName(svc.Spec.ExternalName, c.OwnNamespace)
}

var (
	numericLabel = regexp.MustCompile(`^(0[xX][0-9a-fA-F]*|[0-9]+)$`)
	// localNames are the names that hosts files give to the machine itself.
	localNames = []string{"localhost", "localhost4", "localhost6", "localdomain", "localdomain4", "localdomain6", "ip6-localhost", "ip6-loopback"}
)

const metadataName = "metadata.google.internal"

// checkName refuses names that lead to Envoy's own machine, to the cloud's
// metadata or to Fairway itself, in any spelling that a resolver takes. What a
// name of the outside resolves to cannot be seen here.
func checkName(name, own string) error {
	host := strings.ToLower(strings.TrimSuffix(name, "."))
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	switch {
	case host == "":
		return fmt.Errorf("the external name is empty")
	case len(host) > 253 || !hostName.MatchString(host) || labels[0] == "*":
		return fmt.Errorf("the external name %q is not a host name", name)
	case labels[0] == "localhost" || slices.Contains(localNames, last):
		return fmt.Errorf("the external name %q means the proxy itself", name)
	case host == metadataName:
		return fmt.Errorf("the external name %q means the cloud's metadata", name)
	case own != "" && inNamespace(labels, own):
		return fmt.Errorf("the external name %q points into Fairway's own namespace", name)
	case !numericLabel.MatchString(last):
		return nil
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return fmt.Errorf("the external name %q is neither a host name nor an address", name)
	}
	if !routable(addr) {
		return fmt.Errorf("the external name %q is a loopback or link-local address", name)
	}
	return nil
}

// inNamespace reports whether Envoy, which runs in the namespace, may find a
// Service or a pod of it under a name. Its resolver completes the short forms,
// of which the shortest is the name of a Service alone.
func inNamespace(labels []string, namespace string) bool {
	if len(labels) == 1 {
		return !numericLabel.MatchString(labels[0])
	}
	for i, l := range labels[1:] {
		rest := labels[i+2:]
		if l == namespace && (len(rest) == 0 || rest[0] == "svc" || rest[0] == "pod") {
			return true
		}
	}
	return false
}
