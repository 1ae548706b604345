package watcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"fairway/translator/model"
)

// rig is a Watcher on a fake API server. The fake ignores field selectors;
// what depends on them is tested against the real one.
type rig struct {
	t      *testing.T
	client *fake.Clientset
	queue  *Queue
	w      *Watcher
	seen   map[string]bool // "lane kind ns/name", since the last expect
}

// start runs a Watcher until the test ends and consumes the first Take.
func start(t *testing.T, o Options, objects ...runtime.Object) *rig {
	t.Helper()
	r := &rig{t: t, client: fake.NewClientset(objects...), queue: NewQueue(ms, ms), seen: map[string]bool{}}
	o.Client, o.Queue = r.client, r.queue
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.w = w
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.take(10 * time.Second)
	return r
}

// take adds what is dirty to seen; it returns false if nothing came in time.
func (r *rig) take(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	dirty, _, err := r.queue.Take(ctx)
	if err != nil {
		return false
	}
	for ref := range dirty.Endpoints {
		r.seen["endpoints "+ref.String()] = true
	}
	for ref := range dirty.Config {
		r.seen["config "+ref.String()] = true
	}
	return true
}

// expect waits until each of want was dirty, and fails if something else was.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !r.covers(want) {
		if !r.take(time.Until(deadline)) {
			break
		}
	}
	var got []string
	for s := range r.seen {
		got = append(got, s)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Fatalf("dirty: got %q, want %q", got, want)
	}
	clear(r.seen)
}

func (r *rig) covers(want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !r.seen[s] })
}

func ingress(ns, name string) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func service(ns, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func slice(ns, name, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func secret(ns, name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: kind, Data: map[string][]byte{"a": []byte("b")}}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var (
	update = metav1.UpdateOptions{}
	create = metav1.CreateOptions{}
	remove = metav1.DeleteOptions{}
	get    = metav1.GetOptions{}
)

func TestFirstTakeHasEverything(t *testing.T) {
	r := start(t, Options{}, ingress("a", "i"), service("a", "s"), slice("a", "s-1", "s", "10.0.0.1"),
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	r.expect("config Ingress a/i", "config IngressClass c", "config Service a/s", "endpoints Service a/s")
	src := r.w.Source()
	if src.Ingress(model.Ref{Kind: model.Ingress, Namespace: "a", Name: "i"}) == nil || src.Class("c") == nil || src.Service(svcRef("a", "s")) == nil {
		t.Error("an object is missing in the source")
	}
	if src.Namespace("a") != nil {
		t.Error("namespaces are watched without a selector")
	}
	if p := r.w.Pending(); len(p) != 0 {
		t.Errorf("pending after sync: %q", p)
	}
}

func svcRef(ns, name string) model.Ref {
	return model.Ref{Kind: model.Service, Namespace: ns, Name: name}
}

func TestReadyWithoutObjects(t *testing.T) {
	start(t, Options{}).expect()
}

func TestSlicesOfService(t *testing.T) {
	r := start(t, Options{}, slice("a", "s-1", "s", "10.0.0.1"), slice("a", "s-2", "s", "10.0.0.2"), slice("b", "s-1", "s", "10.0.0.3"))
	r.expect("endpoints Service a/s", "endpoints Service b/s")
	if n := len(r.w.Source().Slices(svcRef("a", "s"))); n != 2 {
		t.Errorf("slices: got %d, want 2", n)
	}
	client := r.client.DiscoveryV1().EndpointSlices("a")
	moved := slice("a", "s-2", "other", "10.0.0.2")
	must[*discoveryv1.EndpointSlice](t)(client.Update(t.Context(), moved, update))
	r.expect("endpoints Service a/other", "endpoints Service a/s")
	if err := client.Delete(t.Context(), "s-1", remove); err != nil {
		t.Fatal(err)
	}
	r.expect("endpoints Service a/s")
	if n := len(r.w.Source().Slices(svcRef("a", "s"))); n != 0 {
		t.Errorf("slices: got %d, want 0", n)
	}
}

// What no translation reads makes nothing dirty.
func TestInvisibleChanges(t *testing.T) {
	r := start(t, Options{}, ingress("a", "i"), slice("a", "s-1", "s", "10.0.0.1"), service("a", "s"))
	r.expect("config Ingress a/i", "config Service a/s", "endpoints Service a/s")

	s := slice("a", "s-1", "s", "10.0.0.1")
	s.Labels["team"], s.Annotations = "blue", map[string]string{"x": "y"}
	s.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: "pod-2"}
	must[*discoveryv1.EndpointSlice](t)(r.client.DiscoveryV1().EndpointSlices("a").Update(t.Context(), s, update))
	i := ingress("a", "i")
	i.Labels = map[string]string{"x": "y"}
	i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	i.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}
	must[*networkingv1.Ingress](t)(r.client.NetworkingV1().Ingresses("a").Update(t.Context(), i, update))
	sv := service("a", "s")
	sv.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	must[*corev1.Service](t)(r.client.CoreV1().Services("a").Update(t.Context(), sv, update))

	must[*networkingv1.Ingress](t)(r.client.NetworkingV1().Ingresses("a").Create(t.Context(), ingress("a", "marker"), create))
	r.expect("config Ingress a/marker")
	eventually(t, "the status is in the store", func() bool {
		return len(r.w.Source().Ingress(model.Ref{Kind: model.Ingress, Namespace: "a", Name: "i"}).Status.LoadBalancer.Ingress) == 1
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestNamespaces(t *testing.T) {
	r := start(t, Options{Namespaces: []string{"b", "a", "a"}}, ingress("a", "i"), ingress("b", "i"), ingress("c", "i"), service("c", "s"))
	r.expect("config Ingress a/i", "config Ingress b/i")
	if r.w.Source().Service(svcRef("c", "s")) != nil || len(r.w.Source().Slices(svcRef("c", "s"))) != 0 {
		t.Error("an object of another namespace is in the source")
	}
	n := 0
	for range r.w.Source().Ingresses() {
		n++
	}
	if n != 2 {
		t.Errorf("ingresses: got %d, want 2", n)
	}
}

func TestNamespaceSelector(t *testing.T) {
	on, off := map[string]string{"serve": "yes"}, map[string]string{"serve": "no"}
	r := start(t, Options{NamespaceSelector: "serve=yes"}, namespace("a", on), namespace("b", off),
		ingress("a", "i"), ingress("b", "i"), service("b", "s"), slice("b", "s-1", "s", "10.0.0.1"))
	r.seen = map[string]bool{} // what is dirty at the start depends on which informer is first
	ref := model.Ref{Kind: model.Ingress, Namespace: "b", Name: "i"}
	if r.w.Source().Ingress(ref) != nil || len(r.w.Source().Slices(svcRef("b", "s"))) != 0 {
		t.Fatal("an object of an unselected namespace is in the source")
	}
	relabel := func(labels map[string]string) {
		must[*corev1.Namespace](t)(r.client.CoreV1().Namespaces().Update(t.Context(), namespace("b", labels), update))
	}
	all := []string{"config Namespace b", "config Ingress b/i", "config Service b/s", "endpoints Service b/s"}
	relabel(on)
	r.expect(all...)
	if r.w.Source().Ingress(ref) == nil || r.w.Source().Service(svcRef("b", "s")) == nil || r.w.Source().Namespace("b") == nil {
		t.Error("an object of a selected namespace is not in the source")
	}
	relabel(off)
	r.expect(all...)
	if r.w.Source().Ingress(ref) != nil {
		t.Error("the Ingress is still in the source")
	}
	must[*networkingv1.Ingress](t)(r.client.NetworkingV1().Ingresses("b").Create(t.Context(), ingress("b", "hidden"), create))
	must[*networkingv1.Ingress](t)(r.client.NetworkingV1().Ingresses("a").Create(t.Context(), ingress("a", "j"), create))
	r.expect("config Ingress a/j")
}

func TestFollow(t *testing.T) {
	r := start(t, Options{}, secret("a", "auth", corev1.SecretTypeOpaque))
	clear(r.seen)
	auth := model.Ref{Kind: model.Secret, Namespace: "a", Name: "auth"}
	later := model.Ref{Kind: model.ConfigMap, Namespace: "a", Name: "later"}
	r.w.Follow([]model.Ref{later, svcRef("a", "s"), {Kind: model.Secret, Name: "no-namespace"}})
	if r.w.Source().ConfigMap(later) != nil {
		t.Error("a ConfigMap that does not exist is in the source")
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "later"}, Data: map[string]string{"k": "v"}}
	must[*corev1.ConfigMap](t)(r.client.CoreV1().ConfigMaps("a").Create(t.Context(), cm, create))
	r.expect("config ConfigMap a/later")
	if got := r.w.Source().ConfigMap(later); got == nil || got.Data["k"] != "v" {
		t.Errorf("ConfigMap: got %v", got)
	}
	r.w.Follow([]model.Ref{auth})
	if r.w.Source().ConfigMap(later) != nil {
		t.Error("a ConfigMap that nothing refers to is in the source")
	}
}

// Watches of single objects end with the references to them.
func TestFollowStops(t *testing.T) {
	r := start(t, Options{})
	ref := model.Ref{Kind: model.ConfigMap, Namespace: "a", Name: "x"}
	for range 20 {
		r.w.Follow([]model.Ref{ref})
		r.w.Follow(nil)
	}
	if n := r.w.store.followed.size(model.ConfigMap); n != 0 {
		t.Errorf("followed: got %d, want 0", n)
	}
	r.w.Follow([]model.Ref{ref})
	// goleak fails this package if a watch outlives the Watcher.
}

// One Ingress that names very many Secrets costs a bounded number of watches, and
// not the one of the operator's own Secret.
func TestFollowIsBounded(t *testing.T) {
	w := must[*Watcher](t)(New(Options{Client: fake.NewClientset(), Queue: NewQueue(0, 0), Namespaces: []string{"a"}}))
	flag := model.Ref{Kind: model.Secret, Namespace: "z", Name: "default"}
	refs := []model.Ref{flag}
	for i := range maxFollowed + 50 {
		refs = append(refs, model.Ref{Kind: model.Secret, Namespace: "a", Name: fmt.Sprintf("missing-%d", i)})
	}
	for range 2 {
		w.Follow(refs)
		if n := len(w.store.followed.items); n != maxFollowed || w.store.followed.items[flag] == nil {
			t.Fatalf("%d watches, that of the flag: %v", n, w.store.followed.items[flag] != nil)
		}
	}
	w.Follow(refs[:2])
	if n := len(w.store.followed.items); n != 2 {
		t.Errorf("%d watches are left", n)
	}
}

func TestConfigMapsOfOptions(t *testing.T) {
	ref := model.Ref{Kind: model.ConfigMap, Namespace: "sys", Name: "global"}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "global"}, Data: map[string]string{"k": "v"}}
	r := start(t, Options{Namespaces: []string{"a"}, ConfigMaps: []model.Ref{ref}}, cm)
	r.expect("config ConfigMap sys/global")
	r.w.Follow(nil)
	if r.w.Source().ConfigMap(ref) == nil {
		t.Error("a ConfigMap of the options was dropped")
	}
}

func TestSelectorsAreSent(t *testing.T) {
	client := fake.NewClientset()
	got := make(chan string, 100)
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		l := a.(clienttesting.ListAction).GetListRestrictions()
		got <- fmt.Sprintf("%s %q %q", a.GetResource().Resource, l.Labels, l.Fields)
		return false, nil, nil
	})
	w, err := New(Options{Client: client, Queue: NewQueue(ms, ms), ServiceSelector: "first=1,second"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, w)
	want := map[string]bool{
		`endpointslices "first=1,kubernetes.io/service-name,second" ""`: true,
		`ingressclasses "" ""`: true, `ingresses "" ""`: true,
		`secrets "" "type=kubernetes.io/tls"`: true, `services "first=1,second" ""`: true,
	}
	for len(want) > 0 {
		select {
		case s := <-got:
			if !want[s] {
				t.Errorf("unexpected list: %s", s)
			}
			delete(want, s)
		case <-time.After(5 * time.Second):
			t.Fatalf("not listed: %v", want)
		}
	}
}

func run(t *testing.T, w *Watcher) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// A kind that cannot be listed keeps the whole source from being ready, and
// Pending says why.
func TestNotReadyWithoutOneKind(t *testing.T) {
	client := fake.NewClientset(ingress("a", "i"))
	client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("services is forbidden")
	})
	q := NewQueue(ms, ms)
	w, err := New(Options{Client: client, Queue: q})
	if err != nil {
		t.Fatal(err)
	}
	run(t, w)
	eventually(t, "only Services are pending, with the reason", func() bool {
		p := w.Pending()
		return len(p) == 1 && strings.Contains(p[0], "Service: ") && strings.Contains(p[0], "services is forbidden")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
	defer cancel()
	if d, _, err := q.Take(ctx); err == nil {
		t.Errorf("took %v from a source that is not complete", d)
	}
}

func TestOptionErrors(t *testing.T) {
	client, q := fake.NewClientset(), NewQueue(ms, ms)
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, "watcher: Client and Queue are required"},
		{Options{ServiceSelector: "a=("}, `service selector "a=(": `},
		{Options{NamespaceSelector: "a in"}, `namespace selector "a in": `},
		{Options{NamespaceSelector: "a=b", Namespaces: []string{"x"}}, "a list of namespaces and a namespace selector exclude each other"},
		{Options{ConfigMaps: []model.Ref{svcRef("a", "b")}}, "preparing informers: Service a/b cannot be watched alone"},
	} {
		if tt.want != "watcher: Client and Queue are required" {
			tt.o.Client, tt.o.Queue = client, q
		}
		if _, err := New(tt.o); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %s", tt.o, err, tt.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := start(t, Options{Registerer: reg}, ingress("a", "i"), ingress("a", "j"), slice("a", "s-1", "s", "10.0.0.1"))
	r.expect("config Ingress a/i", "config Ingress a/j", "endpoints Service a/s")
	want := `
# HELP fairway_watcher_events_total Additions, changes and deletions that the watches delivered, by kind.
# TYPE fairway_watcher_events_total counter
fairway_watcher_events_total{kind="EndpointSlice"} 1
fairway_watcher_events_total{kind="Ingress"} 2
# HELP fairway_watcher_objects Objects held in memory, by kind.
# TYPE fairway_watcher_objects gauge
fairway_watcher_objects{kind="ConfigMap"} 0
fairway_watcher_objects{kind="EndpointSlice"} 1
fairway_watcher_objects{kind="Ingress"} 2
fairway_watcher_objects{kind="IngressClass"} 0
fairway_watcher_objects{kind="Secret"} 0
fairway_watcher_objects{kind="Service"} 0
# HELP fairway_watcher_synced 1 once every object that existed at the start has been processed.
# TYPE fairway_watcher_synced gauge
fairway_watcher_synced 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
