package translator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"fairway/envoy"
	"fairway/translator/model"
)

// Any sequence of changes, translated step by step with any grouping of the
// dirty keys, ends in the bytes, versions and verdicts of a full translation.
func TestApplyEqualsFull(t *testing.T) {
	certs := testCertificates(t)
	rapid.Check(t, func(r *rapid.T) {
		g := &generator{T: r, w: newWorld(), certs: certs, dirty: newDirty()}
		config := testConfig
		config.ExternalName = rapid.Bool().Draw(r, "external name")
		config.DisableCatchAll = rapid.Bool().Draw(r, "disable catch-all")
		if rapid.Bool().Draw(r, "default backend") {
			config.DefaultBackend = model.Ref{Kind: model.Service, Namespace: "a", Name: "s0"}
		}
		if rapid.Bool().Draw(r, "default certificate") {
			config.DefaultCertificate = model.Ref{Kind: model.Secret, Namespace: "a", Name: "t0"}
		}
		tr, client := New(config), map[envoy.Name]*envoy.Resource{}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			for range rapid.IntRange(1, 3).Draw(r, "changes") {
				g.change()
			}
			result := tr.Apply(g.w, g.dirty)
			g.dirty = newDirty()
			receive(r, client, result.Delta)
			compareWithFull(r, config, g.w, tr, client)
		}
	})
}

func newDirty() model.Dirty {
	return model.Dirty{Endpoints: map[model.Ref]struct{}{}, Config: map[model.Ref]struct{}{}}
}

// receive applies a delta as a client does, and checks that it changes
// something.
func receive(t *rapid.T, client map[envoy.Name]*envoy.Resource, d envoy.Delta) {
	for _, u := range d.Upserts {
		if old := client[u.Key()]; old != nil && old.Version == u.Version {
			t.Fatalf("%v is sent again unchanged", u.Key())
		}
		client[u.Key()] = u
	}
	for _, n := range d.Removes {
		if client[n] == nil {
			t.Fatalf("%v is removed but was never there", n)
		}
		delete(client, n)
	}
}

func compareWithFull(t *rapid.T, c Config, w *world, tr *Translator, client map[envoy.Name]*envoy.Resource) {
	full := New(c)
	d := newDirty()
	for ref := range w.ingresses {
		d.Config[ref] = struct{}{}
	}
	full.Apply(w, d)
	got := slices.SortedFunc(maps.Values(client), func(a, b *envoy.Resource) int { return a.Key().Compare(b.Key()) })
	if d := cmp.Diff(versions(full.Resources()), versions(got)); d != "" {
		t.Fatalf("incremental differs from full (-full +incremental):\n%s", d)
	}
	if d := cmp.Diff(full.verdicts, tr.verdicts); d != "" {
		t.Fatalf("verdicts differ (-full +incremental):\n%s", d)
	}
	if d := cmp.Diff(full.followed, tr.followed); d != "" {
		t.Fatalf("followed references differ:\n%s", d)
	}
}

func versions(rs []*envoy.Resource) []string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprint(r.Type, " ", r.Name, " ", r.Version, " ", envoy.Version(r.Any.Value)))
	}
	return out
}

// generator draws changes from a small world in which everything collides.
type generator struct {
	*rapid.T
	w     *world
	certs []map[string][]byte
	dirty model.Dirty
}

func (g *generator) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.T, label)
}

func (g *generator) namespace() string { return g.pick("namespace", "a", "b") }

func (g *generator) change() {
	switch g.pick("kind", "ingress", "ingress", "service", "slice", "secret", "class") {
	case "ingress":
		g.ingress()
	case "service":
		g.service()
	case "slice":
		g.slice()
	case "secret":
		g.secret()
	case "class":
		g.class()
	}
}

func (g *generator) remove() bool { return rapid.IntRange(0, 3).Draw(g.T, "remove") == 0 }

func (g *generator) ingress() {
	ref := model.Ref{Kind: model.Ingress, Namespace: g.namespace(), Name: g.pick("ingress", "i0", "i1", "i2")}
	g.dirty.Config[ref] = struct{}{}
	if g.remove() {
		delete(g.w.ingresses, ref)
		return
	}
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name,
		CreationTimestamp: metav1.Time{Time: time.Unix(rapid.Int64Range(0, 2).Draw(g.T, "age"), 0)}}}
	if name := g.pick("class", "", "ours", "theirs"); name != "" {
		ing.Spec.IngressClassName = &name
	}
	if rapid.Bool().Draw(g.T, "has default backend") {
		ing.Spec.DefaultBackend = g.backend()
	}
	for range rapid.IntRange(0, 3).Draw(g.T, "rules") {
		ing.Spec.Rules = append(ing.Spec.Rules, g.rule())
	}
	for range rapid.IntRange(0, 2).Draw(g.T, "tls") {
		entry := networkingv1.IngressTLS{SecretName: g.pick("secret", "", "t0", "t1")}
		for range rapid.IntRange(0, 2).Draw(g.T, "tls hosts") {
			entry.Hosts = append(entry.Hosts, g.host())
		}
		ing.Spec.TLS = append(ing.Spec.TLS, entry)
	}
	g.w.ingresses[ref] = ing
}

func (g *generator) host() string {
	return g.pick("host", "", "a.test", "x.a.test", "*.a.test", "b.test", "not a host")
}

func (g *generator) rule() networkingv1.IngressRule {
	rule := networkingv1.IngressRule{Host: g.host()}
	if rapid.IntRange(0, 5).Draw(g.T, "no http") == 0 {
		return rule
	}
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{}
	for range rapid.IntRange(0, 3).Draw(g.T, "paths") {
		typ := networkingv1.PathType(g.pick("path type", "Exact", "Prefix", "ImplementationSpecific"))
		rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{
			Path:     g.pick("path", "/", "/foo", "/foo/", "/foo/bar", "/{a|b}", "/é", "/q?x", "", "/.well-known/acme-challenge/x"),
			PathType: &typ, Backend: *g.backend(),
		})
	}
	return rule
}

func (g *generator) backend() *networkingv1.IngressBackend {
	if rapid.IntRange(0, 7).Draw(g.T, "resource") == 0 {
		return &networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	}
	port := networkingv1.ServiceBackendPort{Number: rapid.SampledFrom([]int32{80, 81}).Draw(g.T, "number")}
	if rapid.Bool().Draw(g.T, "by name") {
		port = networkingv1.ServiceBackendPort{Name: g.pick("port name", "http", "other")}
	}
	return &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: g.pick("service", "s0", "s1"), Port: port}}
}

func (g *generator) service() {
	ref := model.Ref{Kind: model.Service, Namespace: g.namespace(), Name: g.pick("service", "s0", "s1")}
	g.dirty.Config[ref] = struct{}{}
	if g.remove() {
		delete(g.w.services, ref)
		return
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	if rapid.IntRange(0, 4).Draw(g.T, "external") == 0 {
		svc.Spec.Type = corev1.ServiceTypeExternalName
		svc.Spec.ExternalName = g.pick("external name", "example.org", "localhost", "127.1", "10.1.2.3")
	}
	for range rapid.IntRange(0, 2).Draw(g.T, "ports") {
		p := corev1.ServicePort{Name: g.pick("port name", "http", "other", ""), Port: rapid.SampledFrom([]int32{80, 81}).Draw(g.T, "port")}
		if proto := g.pick("application protocol", "", "kubernetes.io/h2c", "https"); proto != "" {
			p.AppProtocol = &proto
		}
		svc.Spec.Ports = append(svc.Spec.Ports, p)
	}
	g.w.services[ref] = svc
}

func (g *generator) slice() {
	service := model.Ref{Kind: model.Service, Namespace: g.namespace(), Name: g.pick("service", "s0", "s1")}
	g.dirty.Endpoints[service] = struct{}{}
	name := service.Namespace + "/" + service.Name + g.pick("slice", "-a", "-b")
	if g.remove() {
		delete(g.w.slices, name)
		return
	}
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Namespace: service.Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}}}
	portName, number := g.pick("port name", "http", "other", ""), rapid.SampledFrom([]int32{8080, 9090}).Draw(g.T, "target port")
	s.Ports = []discoveryv1.EndpointPort{{Name: &portName, Port: &number}}
	for range rapid.IntRange(0, 3).Draw(g.T, "endpoints") {
		ready, terminating := rapid.Bool().Draw(g.T, "ready"), rapid.Bool().Draw(g.T, "terminating")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{g.pick("address", "10.245.0.1", "10.245.0.2", "10.245.0.3")},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Terminating: &terminating},
		})
	}
	g.w.slices[name] = s
}

func (g *generator) secret() {
	ref := model.Ref{Kind: model.Secret, Namespace: g.namespace(), Name: g.pick("secret", "t0", "t1")}
	g.dirty.Config[ref] = struct{}{}
	if g.remove() {
		delete(g.w.secrets, ref)
		return
	}
	g.w.secrets[ref] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}, Type: corev1.SecretTypeTLS,
		Data: rapid.SampledFrom(g.certs).Draw(g.T, "certificate"),
	}
}

func (g *generator) class() {
	name := g.pick("class", "ours", "theirs")
	g.dirty.Config[model.Ref{Kind: model.Class, Name: name}] = struct{}{}
	if g.remove() {
		delete(g.w.classes, name)
		return
	}
	controller := g.pick("controller", testConfig.ControllerClass, "example.org/other")
	g.w.classes[name] = &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controller}}
}
