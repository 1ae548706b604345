package translator

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"fairway/envoy"
	"fairway/translator/model"
)

// oddTexts are what strings of an object may hold at worst.
var oddTexts = []string{
	"", "/", "*", ".", "%", "%%", "%REQ(authorization)%", "a\x00b", "a\nb", "\r\n", "\xff\xfe", "é", "{a|b}", "(?:", "[", `\`, "'\"", "#?", "..", "/../", "//",
	"-", "A.TEST", "a.test", "*.a.test", "::1", "127.1", "nil", "${x}", "{{.}}", strings.Repeat("a", 300), strings.Repeat("a.", 126) + "a",
	"/" + strings.Repeat("x", 500) + "/{set:alpha|beta|gamma|delta|epsilon|zeta|theta|kappa|lambda}",
}

type odd struct{ *rapid.T }

func (o odd) text() string { return rapid.SampledFrom(oddTexts).Draw(o.T, "text") }
func (o odd) yes() bool    { return rapid.Bool().Draw(o.T, "yes") }
func (o odd) number() int32 {
	return rapid.SampledFrom([]int32{-1, 0, 1, 80, 65535, 65536, 1<<31 - 1}).Draw(o.T, "number")
}
func (o odd) some() int { return rapid.IntRange(0, 3).Draw(o.T, "some") }

// maybe returns nil in half of the cases.
func maybe[V any](o odd, v func() V) *V {
	if o.yes() {
		return nil
	}
	return new(v())
}

func many[V any](o odd, v func() V) []V {
	var out []V
	for range o.some() {
		out = append(out, v())
	}
	return out
}

func (o odd) ingress() *networkingv1.Ingress {
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: "odd", Annotations: map[string]string{o.text(): o.text()}}}
	ing.Spec.DefaultBackend = maybe(o, o.backend)
	ing.Spec.TLS = many(o, func() networkingv1.IngressTLS {
		return networkingv1.IngressTLS{Hosts: many(o, o.text), SecretName: rapid.SampledFrom([]string{"odd", "", "\xff"}).Draw(o.T, "secret")}
	})
	ing.Spec.Rules = many(o, func() networkingv1.IngressRule {
		r := networkingv1.IngressRule{Host: o.text()}
		r.HTTP = maybe(o, func() networkingv1.HTTPIngressRuleValue {
			return networkingv1.HTTPIngressRuleValue{Paths: many(o, o.path)}
		})
		return r
	})
	return ing
}

func (o odd) path() networkingv1.HTTPIngressPath {
	p := networkingv1.HTTPIngressPath{Path: o.text(), Backend: o.backend()}
	if o.yes() {
		p.Path = "/" + p.Path
	}
	p.PathType = maybe(o, func() networkingv1.PathType {
		return networkingv1.PathType(rapid.SampledFrom([]string{"Exact", "Prefix", "ImplementationSpecific", "", "\xff"}).Draw(o.T, "type"))
	})
	return p
}

func (o odd) backend() networkingv1.IngressBackend {
	return networkingv1.IngressBackend{
		Service: maybe(o, func() networkingv1.IngressServiceBackend {
			return networkingv1.IngressServiceBackend{Name: rapid.SampledFrom([]string{"odd", "odd\xff", "", "gone"}).Draw(o.T, "service"),
				Port: networkingv1.ServiceBackendPort{Name: rapid.SampledFrom([]string{"", "odd"}).Draw(o.T, "port"), Number: o.number()}}
		}),
		Resource: maybe(o, func() corev1.TypedLocalObjectReference { return corev1.TypedLocalObjectReference{} }),
	}
}

func (o odd) service(name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: name}}
	if o.yes() {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, o.text()
	}
	s.Spec.IPFamilies = many(o, func() corev1.IPFamily { return corev1.IPFamily(o.text()) })
	s.Spec.Ports = many(o, func() corev1.ServicePort {
		return corev1.ServicePort{Name: "odd", Port: o.number(), Protocol: rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "\xff"}).Draw(o.T, "protocol"), AppProtocol: maybe(o, o.text)}
	})
	return s
}

func (o odd) slice() *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: rapid.SampledFrom([]discoveryv1.AddressType{"", "IPv4", "IPv6", "FQDN"}).Draw(o.T, "address type")}
	s.Namespace, s.Labels = "odd", map[string]string{discoveryv1.LabelServiceName: "odd"}
	s.Ports = many(o, func() discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: maybe(o, func() string { return "odd" }), Port: maybe(o, o.number), Protocol: maybe(o, func() corev1.Protocol { return corev1.Protocol(o.text()) })}
	})
	s.Endpoints = many(o, func() discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: many(o, o.text), Conditions: discoveryv1.EndpointConditions{Ready: maybe(o, o.yes), Serving: maybe(o, o.yes), Terminating: maybe(o, o.yes)}}
	})
	return s
}

func (o odd) secret() *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: "odd"}, Type: corev1.SecretTypeTLS}
	if o.yes() {
		s.Data = map[string][]byte{"tls.crt": []byte(o.text()), "tls.key": []byte(o.text())}
	}
	return s
}

// Whatever an object holds, nothing panics, everything that comes out is valid,
// and an honest host beside it keeps its routes, its endpoints and its updates.
func TestOddObjectsHarmNobody(t *testing.T) {
	alone := newWorld()
	alone.add(t, []byte(strings.ReplaceAll(oneIngress, "a.test", "honest.test")))
	reference := New(testConfig)
	reference.Apply(alone, allDirty(alone))
	want := hostBytes(reference, "honest.test")
	rapid.Check(t, func(r *rapid.T) {
		o, w := odd{r}, alone.clone()
		w.put(o.ingress())
		w.services[refOf(model.Service, "odd", "odd")], w.services[refOf(model.Service, "odd", "odd\xff")] = o.service("odd"), o.service("odd\xff")
		w.secrets[refOf(model.Secret, "odd", "odd")] = o.secret()
		w.slices["odd"] = o.slice()
		config := testConfig
		config.ExternalName = true
		tr := New(config)
		tr.Apply(w, allDirty(w))
		for _, problem := range invalid(tr.published) {
			// Services with such names do not exist; their clusters are left out.
			if !strings.Contains(problem.Error(), "\xff") {
				r.Error(problem)
			}
		}
		if got := hostBytes(tr, "honest.test"); got != want {
			r.Error("another host is affected")
		}
		w.slices["web"] = growthSliceIn("shop", "web")
		d := newDirty()
		d.Endpoints[refOf(model.Service, "shop", "web")], d.Endpoints[refOf(model.Service, "odd", "odd")] = struct{}{}, struct{}{}
		if delta := tr.Apply(w, d).Delta; len(delta.Upserts) != 1 || delta.Upserts[0].Name != "shop/web/80" {
			r.Errorf("the honest endpoints are not updated alone: %d upserts", len(delta.Upserts))
		}
	})
}

func growthSliceIn(namespace, service string) *discoveryv1.EndpointSlice {
	s := growthSlice(service, 1)
	s.Namespace = namespace
	return s
}

// hostBytes returns the virtual hosts of a host in both tables.
func hostBytes(tr *Translator, name string) string {
	h := tr.hosts[name]
	if h == nil {
		return ""
	}
	return string(h.plain) + "|" + string(h.tls)
}

// Sizes at the edge of what the API takes.
func TestHugeObjects(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a" // 253 bytes
	paths := make([]networkingv1.HTTPIngressPath, 5_000)
	for i := range paths {
		paths[i] = networkingv1.HTTPIngressPath{Path: fmt.Sprintf("/p%d/{a|b}/%s", i, strings.Repeat("x", 100)), Backend: backendTo("web", 80)}
	}
	rand.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	many := func(host string, paths ...networkingv1.HTTPIngressPath) networkingv1.IngressRule {
		return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}}
	}
	odd := networkingv1.HTTPIngressPath{Path: oddTexts[len(oddTexts)-1], Backend: backendTo("web", 80)}
	w := newWorld()
	w.add(t, []byte(oneIngress))
	huge := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "huge"}}
	huge.Spec.Rules = []networkingv1.IngressRule{many("huge.test", paths...), many(long, odd), many("*."+long[2:], odd), many("a"+long, odd)}
	w.put(huge)
	tr := New(testConfig)
	result := tr.Apply(w, allDirty(w))
	for _, h := range tableOf(t, tr, envoy.HTTPName).GetVirtualHosts() {
		if want := map[string]int{"huge.test": 10_000, long: 2, "*." + long[2:]: 3, "a.test": 1}[h.GetName()]; len(h.GetRoutes()) != want {
			t.Errorf("%.20s has %d routes, want %d", h.GetName(), len(h.GetRoutes()), want)
		}
	}
	if r := result.Verdicts[0].Reports; len(r) != 1 || r[0].Reason != "InvalidHost" || r[0].Field != "spec.rules[3].host" {
		t.Errorf("got reports %v", r)
	}
	validate(t, tr.published)
}

func backendTo(service string, port int32) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: port}}}
}

// trap is a Source whose lookups of one Service, or of its slices, panic.
type trap struct {
	*world
	service, slices bool
}

var trapped = refOf(model.Service, "odd", "trap")

func (s *trap) Service(r model.Ref) *corev1.Service {
	if r == trapped && s.service {
		panic("trap")
	}
	return s.world.Service(r)
}

func (s *trap) Slices(r model.Ref) []*discoveryv1.EndpointSlice {
	if r == trapped && s.slices {
		return []*discoveryv1.EndpointSlice{nil}
	}
	return s.world.Slices(r)
}

// An object that makes Fairway panic is left out alone, its owner is told, and
// it is served as soon as it is in order, without anybody else's notice.
func TestPanicIsQuarantined(t *testing.T) {
	ingress, service := refOf(model.Ingress, "odd", "odd"), dirty(trapped)
	service.Endpoints[trapped] = struct{}{}
	for name, c := range map[string]struct {
		trap  trap
		where string
		heal  func(*trap) model.Dirty
	}{
		"while its Ingress is read": {trap{service: true}, "leaves it out; please report this: trap at fairway/translator.(*trap).Service", func(s *trap) model.Dirty {
			s.service = false
			return dirty(trapped)
		}},
		"while its endpoints are read": {trap{slices: true}, "at fairway/translator.addresses", func(s *trap) model.Dirty {
			s.slices = false
			return model.Dirty{Endpoints: map[model.Ref]struct{}{trapped: {}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			src := &c.trap
			src.world = newWorld()
			src.add(t, []byte(oneIngress))
			odd := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: "odd"}}
			odd.Spec.Rules = []networkingv1.IngressRule{{Host: "odd.test", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", Backend: backendTo("trap", 80)}}}}}}
			src.put(odd)
			src.services[trapped] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: "trap"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}

			tr := New(testConfig)
			result := tr.Apply(src, allDirty(src.world))
			if len(result.Verdicts) != 2 || result.Verdicts[0].Ingress != ingress || len(result.Verdicts[1].Reports) != 0 {
				t.Fatalf("got %v", result.Verdicts)
			}
			if r := result.Verdicts[0].Reports; len(r) != 1 || r[0].Reason != "InternalError" || !strings.HasSuffix(r[0].Message, c.where) {
				t.Fatalf("got %v", r)
			}
			if tr.published[envoy.Name{Type: envoy.Cluster, Name: "shop/web/80"}] == nil || tr.published[envoy.Name{Type: envoy.Cluster, Name: "odd/trap/80"}] != nil {
				t.Fatal("the wrong clusters are published")
			}
			if r := tr.Apply(src, service); !r.Delta.Empty() || len(r.Verdicts) != 0 {
				t.Errorf("nothing changed, but %d resources and %d verdicts did", len(r.Delta.Upserts)+len(r.Delta.Removes), len(r.Verdicts))
			}
			healed := tr.Apply(src, c.heal(src))
			if len(healed.Verdicts) != 1 || len(healed.Verdicts[0].Reports) != 0 || tr.published[envoy.Name{Type: envoy.Cluster, Name: "odd/trap/80"}] == nil {
				t.Fatalf("it does not come back: %v", healed.Verdicts)
			}
		})
	}
}
