package translator

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"fairway/translator/model"
)

// generator draws changes from a small world in which everything collides.
type generator struct {
	*rapid.T
	w     *world
	certs []map[string][]byte
	dirty model.Dirty
}

func (g *generator) config() Config {
	c := testConfig
	c.ExternalName = rapid.Bool().Draw(g.T, "external name")
	c.DisableCatchAll = rapid.IntRange(0, 3).Draw(g.T, "disable catch-all") == 0
	c.WithoutClass = rapid.IntRange(0, 3).Draw(g.T, "without class") != 0
	if rapid.Bool().Draw(g.T, "default backend") {
		c.DefaultBackend = model.Ref{Kind: model.Service, Namespace: "a", Name: "s0"}
	}
	if rapid.Bool().Draw(g.T, "default certificate") {
		c.DefaultCertificate = model.Ref{Kind: model.Secret, Namespace: "a", Name: "t0"}
	}
	return c
}

func (g *generator) changes() {
	for range rapid.IntRange(1, 3).Draw(g.T, "changes") {
		g.change()
	}
}

// apply translates all that is dirty.
func (g *generator) apply(tr *Translator) Result {
	d := g.dirty
	g.dirty = newDirty()
	return tr.Apply(g.w, d)
}

// applyLive translates while the Source moves on: its keys stay dirty.
func (g *generator) applyLive(tr *Translator) Result {
	src := &moving{Source: g.w, next: g.w.clone(), left: rapid.IntRange(0, 30).Draw(g.T, "reads")}
	d := g.dirty
	g.w, g.dirty = src.next, newDirty()
	g.changes()
	return tr.Apply(src, d)
}

// moving is a Source that becomes another one after a number of reads.
type moving struct {
	model.Source
	next *world
	left int
}

func (m *moving) now() model.Source {
	if m.left--; m.left < 0 {
		m.Source = m.next
	}
	return m.Source
}

func (m *moving) Ingress(r model.Ref) *networkingv1.Ingress { return m.now().Ingress(r) }
func (m *moving) Service(r model.Ref) *corev1.Service       { return m.now().Service(r) }
func (m *moving) Slices(service model.Ref) []*discoveryv1.EndpointSlice {
	return m.now().Slices(service)
}
func (m *moving) Secret(r model.Ref) *corev1.Secret            { return m.now().Secret(r) }
func (m *moving) Class(name string) *networkingv1.IngressClass { return m.now().Class(name) }

func (g *generator) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.T, label)
}

func (g *generator) namespace() string { return g.pick("namespace", "a", "b") }

func (g *generator) change() {
	switch g.pick("kind", "ingress", "ingress", "service", "slice", "secret", "secret", "class", "age", "age", "nothing") {
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
	case "age":
		g.age()
	case "nothing": // a key may be dirty for no reason
		ref := model.Ref{Kind: model.Kind(g.pick("dirty kind", "Ingress", "Service", "Secret")), Namespace: g.namespace(), Name: g.pick("name", "i0", "s0", "t0")}
		g.dirty.Config[ref] = struct{}{}
	}
}

func (g *generator) remove() bool { return rapid.IntRange(0, 5).Draw(g.T, "remove") == 0 }

func (g *generator) ingress() {
	ref := model.Ref{Kind: model.Ingress, Namespace: g.namespace(), Name: g.pick("ingress", "i0", "i1", "i2")}
	g.dirty.Config[ref] = struct{}{}
	if g.remove() {
		delete(g.w.ingresses, ref)
		return
	}
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name,
		CreationTimestamp: metav1.Time{Time: time.Unix(rapid.Int64Range(0, 2).Draw(g.T, "age"), 0)}}}
	if name := g.pick("class", "", "", "", "ours", "theirs"); name != "" {
		ing.Spec.IngressClassName = &name
	} else if name := g.pick("annotation", "", "", "", "fairway", "nginx"); name != "" {
		ing.Annotations = map[string]string{classAnnotation: name}
	}
	if rapid.Bool().Draw(g.T, "has default backend") {
		ing.Spec.DefaultBackend = g.backend()
	}
	for range rapid.IntRange(0, 3).Draw(g.T, "rules") {
		ing.Spec.Rules = append(ing.Spec.Rules, g.rule())
	}
	for range rapid.IntRange(0, 2).Draw(g.T, "tls") {
		entry := networkingv1.IngressTLS{SecretName: g.pick("secret", "t0", "t1", "")}
		for range rapid.IntRange(0, 2).Draw(g.T, "tls hosts") {
			entry.Hosts = append(entry.Hosts, g.host())
		}
		ing.Spec.TLS = append(ing.Spec.TLS, entry)
	}
	g.w.ingresses[ref] = ing
}

// age recreates an Ingress as it was.
func (g *generator) age() {
	all := sortedKeys(g.w.ingresses)
	if len(all) == 0 {
		return
	}
	ref := rapid.SampledFrom(all).Draw(g.T, "recreated")
	ing := g.w.ingresses[ref].DeepCopy()
	ing.CreationTimestamp = metav1.Time{Time: time.Unix(rapid.Int64Range(0, 2).Draw(g.T, "age"), 0)}
	g.w.ingresses[ref] = ing
	g.dirty.Config[ref] = struct{}{}
}

func (g *generator) host() string {
	return g.pick("host", "a.test", "", "x.a.test", "A.test", "*.a.test", "b.test", "not a host")
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
			Path:     g.pick("path", "/", "/foo", "/foo/", "/foo/bar", "/{a|b}", "/é", "/%C3%A9", "/é/x", "/q?x", "", "/.well-known/acme-challenge/x"),
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
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Type:       corev1.SecretType(g.pick("secret type", "kubernetes.io/tls", "kubernetes.io/tls", "kubernetes.io/tls", "kubernetes.io/tls", "Opaque")),
		Data:       rapid.SampledFrom(g.certs).Draw(g.T, "certificate"),
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
