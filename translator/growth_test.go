package translator

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/translator/model"
)

// growthWorld holds n Ingresses of one host each, three paths, and a Service
// with ten endpoints for every one of them.
func growthWorld(n int) *world {
	w := newWorld()
	for i := range n {
		name := fmt.Sprint("app-", i)
		backend := func(port int32) networkingv1.IngressBackend {
			return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: port}}}
		}
		w.put(&networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: name + ".test", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
				{Path: "/", Backend: backend(80)}, {Path: "/api", Backend: backend(80)}, {Path: "/static", Backend: backend(80)},
			}}},
		}}}})
		w.put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
		w.put(growthSlice(name, 0))
	}
	return w
}

func growthSlice(service string, change int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	s.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}
	for i := range 10 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.245.%d.%d", change%200, i+1)}})
	}
	return s
}

// indexed answers Slices as an informer's index does, in constant time.
type indexed struct {
	*world
	slices map[model.Ref][]*discoveryv1.EndpointSlice
}

func newIndexed(w *world) *indexed {
	x := &indexed{world: w, slices: map[model.Ref][]*discoveryv1.EndpointSlice{}}
	for _, s := range w.slices {
		x.set(s)
	}
	return x
}

func (x *indexed) set(s *discoveryv1.EndpointSlice) {
	x.slices[refOf(model.Service, s.Namespace, s.Labels[discoveryv1.LabelServiceName])] = []*discoveryv1.EndpointSlice{s}
}

func (x *indexed) Slices(service model.Ref) []*discoveryv1.EndpointSlice { return x.slices[service] }

type cost struct{ allocs, bytes, resources float64 }

// endpointCost is what one change of one Service's endpoints costs among n
// Ingresses.
func endpointCost(t *testing.T, n int) cost {
	const changes = 200
	x := newIndexed(growthWorld(n))
	tr := New(testConfig)
	tr.Apply(x, allDirty(x.world))
	all := make([]*discoveryv1.EndpointSlice, changes)
	for i := range all {
		all[i] = growthSlice("app-7", i+1)
	}
	d := newDirty()
	d.Endpoints[refOf(model.Service, "shop", "app-7")] = struct{}{}
	var before, after runtime.MemStats
	resources := 0
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, s := range all {
		x.set(s)
		delta := tr.Apply(x, d).Delta
		resources += len(delta.Upserts) + len(delta.Removes)
	}
	runtime.ReadMemStats(&after)
	if resources != changes {
		t.Fatalf("%d changes of endpoints publish %d resources", changes, resources)
	}
	return cost{float64(after.Mallocs-before.Mallocs) / changes, float64(after.TotalAlloc-before.TotalAlloc) / changes, float64(resources) / changes}
}

// An endpoint change costs what that endpoint costs, whatever else there is.
func TestEndpointChangeDoesNotGrow(t *testing.T) {
	small, large := endpointCost(t, 1_000), endpointCost(t, 10_000)
	t.Logf("per endpoint change: %+v among 1,000 Ingresses, %+v among 10,000", small, large)
	const limit = 1.3
	if large.allocs > limit*small.allocs || large.bytes > limit*small.bytes || large.resources > limit*small.resources {
		t.Errorf("among 10,000 Ingresses an endpoint change costs %+v, among 1,000 %+v", large, small)
	}
}

// fullCost is what the first translation of an Ingress allocates that has so many
// wildcard hosts, and so many paths without a host.
func fullCost(wildcards, paths int) uint64 {
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for i := range wildcards {
		ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("*.h%d.test", i)})
	}
	http := &networkingv1.HTTPIngressRuleValue{}
	for i := range paths {
		http.Paths = append(http.Paths, networkingv1.HTTPIngressPath{Path: fmt.Sprint("/", i), Backend: networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}})
	}
	ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}})
	w := newWorld()
	w.put(ing)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Full(testConfig, w)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Hosts and paths of one object add up; they do not multiply.
func TestWildcardHostsDoNotMultiplyPaths(t *testing.T) {
	const hosts, paths = 500, 2_000
	apart := fullCost(hosts, 0) + fullCost(0, paths)
	if together := fullCost(hosts, paths); together > 2*apart {
		t.Errorf("%d wildcard hosts and %d paths allocate %d bytes together, %d bytes apart", hosts, paths, together, apart)
	} else {
		t.Logf("%d bytes together, %d apart", together, apart)
	}
}

func BenchmarkFull(b *testing.B) {
	x := newIndexed(growthWorld(10_000))
	b.ReportAllocs()
	for b.Loop() {
		Full(testConfig, x)
	}
}

func BenchmarkEndpointChange(b *testing.B) {
	x := newIndexed(growthWorld(10_000))
	tr := New(testConfig)
	tr.Apply(x, allDirty(x.world))
	d := newDirty()
	d.Endpoints[refOf(model.Service, "shop", "app-7")] = struct{}{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.set(growthSlice("app-7", i))
		tr.Apply(x, d)
	}
}

func BenchmarkIngressChange(b *testing.B) {
	x := newIndexed(growthWorld(10_000))
	tr := New(testConfig)
	tr.Apply(x, allDirty(x.world))
	ingress := refOf(model.Ingress, "shop", "app-7")
	original := x.ingresses[ingress]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := original.DeepCopy()
		changed.Spec.Rules[0].HTTP.Paths[1].Path = fmt.Sprint("/api-", i%2)
		x.ingresses[ingress] = changed
		tr.Apply(x, dirty(ingress))
	}
}
