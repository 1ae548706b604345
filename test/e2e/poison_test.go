package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairway/test/rig"
)

// poison is a set of objects of one owner that go wrong, or look like it.
type poison struct {
	objects []runtime.Object
	yaml    string
	// Each Event that its Ingress web gets: reason and a part of the message.
	events map[string]string
	// What the host poisoned.NAME.test answers meanwhile, by path; and by which
	// Service, where there is one.
	answers map[string]int
}

// Whatever one owner applies, all others are served and updated, and Envoy is
// sent nothing that it refuses; the owner is told, and all is well once it is
// gone.
func TestPoison(t *testing.T) {
	t.Parallel()
	for name, p := range poisons(t) {
		t.Run(name, func(t *testing.T) {
			namespace := "poison-" + name
			webService(t, namespace)
			lab.kube.ApplyObjects(t, p.objects...)
			lab.kube.Apply(t, p.yaml)
			othersAreServed(t)
			for path, status := range p.answers {
				client(t).Expect(t, soon, "http://"+namespace+".test"+path, status, "")
			}
			for reason, text := range p.events {
				reported(t, namespace, "web", reason, text)
			}
			lab.kube.Delete(t, p.yaml)
			lab.kube.DeleteObjects(t, p.objects...)
			lab.kube.Apply(t, ingress(namespace, "web", namespace+".test/ web:80"))
			client(t).Expect(t, soon, "http://"+namespace+".test/", 200, "web")
			othersAreServed(t)
			if n := refusals(t, lab.envoy); len(n) > 0 {
				t.Errorf("Envoy refused %v", n)
			}
			if err := lab.fairway.Alive(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

var others atomic.Int64

// othersAreServed creates a new host, changes its endpoint and its route, each of
// which must be served soon.
func othersAreServed(t *testing.T) {
	t.Helper()
	namespace := fmt.Sprintf("other-%d", others.Add(1))
	host := namespace + ".test"
	webService(t, namespace)
	lab.kube.Apply(t, ingress(namespace, "web", host+"/ web:80"))
	client(t).Expect(t, soon, "http://"+host+"/", 200, "web")
	movesSoon(t, namespace, host)
	lab.kube.Apply(t, ingress(namespace, "web", host+"/ web:80", host+"/none none:80"))
	client(t).Expect(t, soon, "http://"+host+"/none", 503, "")
}

// poisons lists the objects. None needs an annotation.
func poisons(t *testing.T) map[string]poison {
	t.Helper()
	one := func(name string, rules ...string) string {
		for i := range rules {
			rules[i] = "poison-" + name + ".test" + rules[i]
		}
		return ingress("poison-"+name, "web", rules...)
	}
	return map[string]poison{
		// A41: fields that may be absent.
		"rule-without-http": {
			yaml:    one("rule-without-http") + "  - host: poison-rule-without-http.test\n",
			answers: map[string]int{"/": 404},
		},
		"rule-without-anything": {yaml: one("rule-without-anything") + "  - {}\n", answers: map[string]int{"/": 404}},
		"resource-backend": {
			yaml: one("resource-backend", "/ok web:80") +
				"      - {path: /bucket, pathType: Prefix, backend: {resource: {apiGroup: x.example, kind: Bucket, name: b}}}\n",
			events:  map[string]string{"ResourceBackend": "backends other than Services are not supported"},
			answers: map[string]int{"/bucket": 404, "/ok": 200},
		},
		"resource-default-backend": {
			yaml:    one("resource-default-backend", "/ok web:80") + "  defaultBackend: {resource: {kind: Bucket, name: b}}\n",
			events:  map[string]string{"ResourceBackend": "spec.defaultBackend.resource"},
			answers: map[string]int{"/": 404, "/ok": 200},
		},
		"tls-without-anything": {yaml: one("tls-without-anything", "/ web:80") + "  tls: [{}, {hosts: [a.example]}, {secretName: absent}]\n",
			events: map[string]string{"SecretNotFound": "Secret poison-tls-without-anything/absent does not exist"}, answers: map[string]int{"/": 308}},
		// A03, A15: hosts and paths that Envoy refuses with all others.
		"same-host-twice": {yaml: one("same-host-twice", "/x web:80", "/y web:80", "/x web:80"),
			events: map[string]string{"PathConflict": "path /x"}, answers: map[string]int{"/x": 200, "/y": 200}},
		"odd-paths": {
			yaml: oddPaths("poison-odd-paths", []string{
				`/{set:alpha|beta|gamma|delta|epsilon|zeta|theta|kappa|lambda}`, "/" + strings.Repeat("a", 500), "/(", "/[", `/\\`, "/*", "/.*", `/a\nb`, `/a\tb`,
				"/a b", "/ü", "/%", "/%zz", "/%00", "/%2f..%2fadmin", "/%REQ(Authorization)%", "/$(x)", "/${x}", "/{{.}}", `/'\"`, "/;", "/x//", "/./", "/../x",
			}),
			answers: map[string]int{"/" + strings.Repeat("a", 500): 200, "/{set:alpha|beta|gamma|delta|epsilon|zeta|theta|kappa|lambda}": 200, "/beta": 404},
		},
		"query-path":    {yaml: oddPaths("poison-query-path", []string{"/a?b=c", "/fine"}), events: map[string]string{"InvalidPath": `"/a?b=c"`}, answers: map[string]int{"/fine": 200, "/a?b=c": 404}},
		"fragment-path": {yaml: oddPaths("poison-fragment-path", []string{"/a#b", "/fine"}), events: map[string]string{"InvalidPath": `"/a#b"`}, answers: map[string]int{"/fine": 200}},
		"long-host":     {yaml: ingress("poison-long-host", "web", strings.Repeat(strings.Repeat("h", 49)+".", 5)+"abc/ web:80")},
		"many-paths":    {yaml: manyPaths(5000), answers: map[string]int{"/p0": 200, "/p4999": 200}},
		// Services and ports.
		"no-service": {yaml: one("no-service", "/ nothing:80"), events: map[string]string{"ServiceNotFound": "poison-no-service/nothing"}, answers: map[string]int{"/": 503}},
		"no-port":    {yaml: one("no-port", "/ web:81"), events: map[string]string{"PortNotFound": "no TCP port 81"}, answers: map[string]int{"/": 503}},
		"udp-port": {
			objects: []runtime.Object{rig.Service("poison-udp-port", "dns", corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP})},
			yaml:    one("udp-port", "/ dns:53"), events: map[string]string{"PortNotFound": "no TCP port 53"}, answers: map[string]int{"/": 503},
		},
		"external-name": {
			objects: []runtime.Object{external("poison-external-name", "ext", "foo.example", rig.ServicePort("", 80))},
			yaml:    one("external-name", "/ ext:80"), events: map[string]string{"ExternalNameDisabled": "poison-external-name/ext"}, answers: map[string]int{"/": 503},
		},
		// EndpointSlices as no controller writes them.
		"odd-slices": {objects: oddSlices("poison-odd-slices"), yaml: one("odd-slices", "/ odd:80"), answers: map[string]int{"/": 503}},
		// Annotations of other controllers, or of this one in time.
		"odd-annotations": {
			yaml:    strings.Replace(one("odd-annotations", "/ web:80"), "name: web}", `name: web, annotations: {a/b: "x\ny", c: "%ENVIRONMENT(HOME)%", d: "\u0000\u001b", e: "`+strings.Repeat("z", 200_000)+`"}}`, 1),
			answers: map[string]int{"/": 200},
		},
	}
}

// oddPaths is an Ingress with paths that the API server takes as
// ImplementationSpecific; they are YAML in double quotes.
func oddPaths(host string, paths []string) string {
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "      - {path: \"%s\", pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}\n", p)
	}
	head, _, _ := strings.Cut(ingress(host, "web", host+".test/ web:80"), "      - {")
	return head + b.String()
}

func manyPaths(n int) string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/p%d", i)
	}
	return oddPaths("poison-many-paths", paths)
}

// oddSlices is a Service whose slices hold nothing that can be used.
func oddSlices(namespace string) []runtime.Object {
	slice := func(name string, change func(*discoveryv1.EndpointSlice)) runtime.Object {
		s := rig.Slice(namespace, "odd", rig.PodIP())
		s.Name = name
		change(s)
		return s
	}
	return []runtime.Object{
		rig.Service(namespace, "odd"),
		slice("no-port", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }),
		slice("no-ports", func(s *discoveryv1.EndpointSlice) { s.Ports = nil }),
		slice("no-endpoints", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{} }),
		slice("other-port", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new("other") }),
		slice("udp", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.ProtocolUDP) }),
		slice("not-ready", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }),
		slice("names", func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"localhost.example"}
		}),
		slice("other-service", func(s *discoveryv1.EndpointSlice) { s.Labels = nil }),
		slice("ipv6", func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"fd00:245::dead"}
		}),
	}
}
