package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairway/test/rig"
)

// external returns a Service that stands for a name.
func external(namespace, service, name string, ports ...corev1.ServicePort) *corev1.Service {
	s := rig.Service(namespace, service)
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: name, Ports: ports}
	return s
}

// External names are off until the operator asks for them, and do not hold up
// the others (A18).
func TestExternalNameIsOff(t *testing.T) {
	t.Parallel()
	site(t, "external-other", "external-other.test", 1)
	lab.kube.Namespace(t, "external-off")
	lab.kube.ApplyObjects(t, external("external-off", "ext", "foo.example", rig.ServicePort("", 80)))
	lab.kube.Apply(t, ingress("external-off", "web", "external-off.test/ ext:80"))
	client(t).Expect(t, wait, "http://external-off.test/", 503, "")
	movesSoon(t, "external-other", "external-other.test")
	reported(t, "external-off", "web", "ExternalNameDisabled", "external-off/ext")
	if clusters := lab.envoy.Clusters(t); clusters["external-off/ext/80"] != nil {
		t.Error("Envoy has a cluster for it")
	}
	// The same Service without an external name heals the route.
	webService(t, "external-off")
	healed := rig.Service("external-off", "ext")
	slice := rig.SliceOf("external-off", "ext", rig.StartBackends(t, "ext", 1)...)
	lab.kube.DeleteObjects(t, healed)
	lab.kube.ApplyObjects(t, healed, slice)
	client(t).Expect(t, wait, "http://external-off.test/", 200, "ext")
}

// With external names on, none leads to Envoy's own machine or to the cloud's
// metadata, in any spelling that the API server lets through.
func TestExternalNames(t *testing.T) {
	t.Parallel()
	s := startSide(t, "external", "--enable-external-name")
	webService(t, "external")
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "outside"})
	names := []string{
		"localhost", "localhost.", "foo.localhost", "foo.localhost.", "localhost.localdomain", "ip6-localhost", "ip6-loopback",
		"127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "127.255.255.254", "0x7f000001", "0x7f.1", "0177.0.0.1", "2130706433", "017700000001",
		"0.0.0.0", "0", "169.254.169.254", "169.254.169.254.", "2852039166", "224.0.0.1", "metadata.google.internal", "metadata.google.internal.",
	}
	for i, name := range names {
		service := fmt.Sprintf("refused-%d", i)
		lab.kube.ApplyObjects(t, external("external", service, name, rig.ServicePort("", 80)))
		s.apply(t, ingress("external", service, service+".external.test/ "+service+":80"))
	}
	for i, name := range names {
		service := fmt.Sprintf("refused-%d", i)
		s.client(t).Expect(t, wait, "http://"+service+".external.test/", 503, "")
		reported(t, "external", service, "ExternalNameRefused", fmt.Sprintf("%q", name))
	}
	for cluster := range s.envoy.Clusters(t) {
		if cluster != "fairway-xds" && cluster != "fairway-admin" {
			t.Errorf("Envoy has the cluster %s", cluster)
		}
	}
	// An address of the outside is served, on the Service's port or, where that
	// has none, on the Ingress's; a name that does not resolve is a 503.
	port := rig.ServicePort("", rig.PodPort)
	lab.kube.ApplyObjects(t,
		external("external", "with-port", pod.IP(), port), external("external", "without-port", pod.IP()),
		external("external", "unknown", "no-such-host.invalid", port))
	var rules []string
	for _, service := range []string{"with-port", "without-port", "unknown"} {
		rules = append(rules, fmt.Sprintf("%s.external.test/ %[1]s:%d", service, rig.PodPort))
	}
	s.apply(t, ingress("external", "outside", rules...))
	s.client(t).Expect(t, wait, "http://with-port.external.test/", 200, "outside")
	s.client(t).Expect(t, wait, "http://without-port.external.test/", 200, "outside")
	s.client(t).Expect(t, wait, "http://unknown.external.test/", 503, "")
	s.apply(t, ingress("external", "inside", "inside.external.test/ web:80"))
	s.client(t).Expect(t, soon, "http://inside.external.test/", 200, "web")
	if n := refusals(t, s.envoy); len(n) > 0 {
		t.Errorf("Envoy refused %v", n)
	}
}
