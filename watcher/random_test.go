package watcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"

	"fairway/translator/model"
)

// mirror knows only what the dirty keys made it look up.
type mirror struct {
	mu      sync.Mutex
	present map[model.Ref]string
}

func (m *mirror) follow(ctx context.Context, q *Queue, src model.Source) {
	for {
		d, _, err := q.Take(ctx)
		if err != nil {
			return
		}
		m.mu.Lock()
		for ref := range d.Config {
			m.present[ref] = view(src, ref)
		}
		for ref := range d.Endpoints {
			m.present[endpointsOf(ref)] = view(src, endpointsOf(ref))
		}
		m.mu.Unlock()
	}
}

// endpointsOf tells the two lanes of a Service apart.
func endpointsOf(service model.Ref) model.Ref {
	service.Kind = "Endpoints"
	return service
}

// view describes what the source says about a Ref; empty: nothing.
func view(src model.Source, ref model.Ref) string {
	switch ref.Kind {
	case model.Ingress:
		if o := src.Ingress(ref); o != nil {
			return fmt.Sprint("v", o.Annotations["v"])
		}
	case model.Service:
		if o := src.Service(ref); o != nil {
			return fmt.Sprint("v", o.Annotations["v"])
		}
	case model.Namespace:
		if o := src.Namespace(ref.Name); o != nil {
			return fmt.Sprint(o.Labels)
		}
	default:
		out := ""
		for _, s := range src.Slices(ref) {
			out += s.Endpoints[0].Addresses[0]
		}
		return out
	}
	return ""
}

// Random changes, among them Namespaces that come into and fall out of the
// selection: whoever follows the dirty keys alone knows everything.
func TestDirtyKeysTellEverything(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkMirror(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func checkMirror(t *testing.T, r *rand.Rand) {
	client, q := fake.NewClientset(namespace("a", nil), namespace("b", nil)), NewQueue(ms, 5*ms)
	w, err := New(Options{Client: client, Queue: q, NamespaceSelector: "serve=yes"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, w)
	m := &mirror{present: map[model.Ref]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { m.follow(ctx, q, w.Source()) })
	defer wg.Wait()
	defer cancel()
	eventually(t, "ready", func() bool { return len(w.Pending()) == 0 })
	for range 120 {
		change(t, client, r)
	}
	refs := []model.Ref{{Kind: model.Namespace, Name: "a"}, {Kind: model.Namespace, Name: "b"}}
	for _, ns := range []string{"a", "b"} {
		refs = append(refs, model.Ref{Kind: model.Ingress, Namespace: ns, Name: "x"}, svcRef(ns, "x"), endpointsOf(svcRef(ns, "x")))
	}
	var got, want map[model.Ref]string
	defer func() {
		if t.Failed() {
			t.Logf("got  %v\nwant %v", got, want)
		}
	}()
	eventually(t, "the mirror shows what the API server has", func() bool {
		got, want = map[model.Ref]string{}, map[model.Ref]string{}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, ref := range refs {
			got[ref], want[ref] = m.present[ref], truth(t, client, ref)
		}
		return reflect.DeepEqual(got, want)
	})
}

// change makes one random change.
func change(t *testing.T, c *fake.Clientset, r *rand.Rand) {
	t.Helper()
	ns, version := []string{"a", "b"}[r.IntN(2)], map[string]string{"v": fmt.Sprint(r.IntN(3))}
	var err error
	switch r.IntN(7) {
	case 0:
		_, err = c.CoreV1().Namespaces().Update(t.Context(), namespace(ns, map[string]string{"serve": []string{"yes", "no"}[r.IntN(2)]}), update)
	case 1:
		err = c.NetworkingV1().Ingresses(ns).Delete(t.Context(), "x", remove)
	case 2:
		o := ingress(ns, "x")
		o.Annotations = version
		if _, err = c.NetworkingV1().Ingresses(ns).Create(t.Context(), o, create); apierrors.IsAlreadyExists(err) {
			_, err = c.NetworkingV1().Ingresses(ns).Update(t.Context(), o, update)
		}
	case 3:
		err = c.CoreV1().Services(ns).Delete(t.Context(), "x", remove)
	case 4:
		o := service(ns, "x")
		o.Annotations = version
		if _, err = c.CoreV1().Services(ns).Create(t.Context(), o, create); apierrors.IsAlreadyExists(err) {
			_, err = c.CoreV1().Services(ns).Update(t.Context(), o, update)
		}
	case 5:
		err = c.DiscoveryV1().EndpointSlices(ns).Delete(t.Context(), "x-1", remove)
	case 6:
		o := slice(ns, "x-1", "x", "10.0.0."+version["v"])
		if _, err = c.DiscoveryV1().EndpointSlices(ns).Create(t.Context(), o, create); apierrors.IsAlreadyExists(err) {
			_, err = c.DiscoveryV1().EndpointSlices(ns).Update(t.Context(), o, update)
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// truth is what view has to say in the end.
func truth(t *testing.T, c *fake.Clientset, ref model.Ref) string {
	t.Helper()
	name := ref.Namespace
	if ref.Kind == model.Namespace {
		name = ref.Name
	}
	ns, err := c.CoreV1().Namespaces().Get(t.Context(), name, get)
	if err != nil {
		t.Fatal(err)
	}
	selected := ns.Labels["serve"] == "yes"
	switch {
	case ref.Kind == model.Namespace:
		return fmt.Sprint(ns.Labels)
	case !selected:
		return ""
	case ref.Kind == model.Ingress:
		if o, err := c.NetworkingV1().Ingresses(ref.Namespace).Get(t.Context(), "x", get); err == nil {
			return fmt.Sprint("v", o.Annotations["v"])
		}
	case ref.Kind == model.Service:
		if o, err := c.CoreV1().Services(ref.Namespace).Get(t.Context(), "x", get); err == nil {
			return fmt.Sprint("v", o.Annotations["v"])
		}
	default:
		if o, err := c.DiscoveryV1().EndpointSlices(ref.Namespace).Get(t.Context(), "x-1", get); err == nil {
			return o.Endpoints[0].Addresses[0]
		}
	}
	return ""
}
