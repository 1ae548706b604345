package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/test/rig"
)

// ledger counts how often each order reached a backend.
type ledger struct {
	mu     sync.Mutex
	orders map[string]int
}

func (l *ledger) write(r *http.Request) {
	if order := r.Header.Get("X-Order"); order != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.orders[order]++
	}
}

// A rolling update as Kubernetes makes it: a new pod is ready, the old one
// terminates and serves on for a while, then it is gone. No request is lost and
// no order is placed twice (A16).
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "rolling")
	book := &ledger{orders: map[string]int{}}
	start := func() *rig.Backend {
		return rig.StartBackend(t, rig.BackendOptions{Service: "web", OnRequest: book.write})
	}
	pods := []*rig.Backend{start(), start(), start(), start(), start()}
	lab.kube.ApplyObjects(t, rig.Service("rolling", "web"), rig.SliceOf("rolling", "web", pods...))
	lab.kube.Apply(t, ingress("rolling", "web", "rolling.test/ web:80"))
	load := lab.steady(t, "http://rolling.test/")
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i, c := range []*rig.Client{client(t), lab.fairway.Client(t, lab.envoy, rig.ClientOptions{HTTP2: true})} {
		running.Go(func() { placeOrders(t, c, fmt.Sprint(i), stop) })
	}
	for i := range pods {
		old := pods[0]
		pods = append(pods[1:], start())
		slice := rig.SliceOf("rolling", "web", append(pods, old)...)
		conditions := &slice.Endpoints[len(slice.Endpoints)-1].Conditions
		conditions.Ready, conditions.Serving, conditions.Terminating = new(false), new(true), new(true)
		lab.kube.ApplyObjects(t, slice)
		want := map[string]bool{}
		for _, p := range pods {
			want[p.Address] = true
		}
		rig.Eventually(t, soon, func() error { return sameMembers(lab.envoy.Clusters(t)["rolling/web/80"], want) }, fmt.Sprintf("step %d", i))
		// What is under way when Envoy learns of it comes to its end meanwhile.
		time.Sleep(300 * time.Millisecond)
		lab.kube.ApplyObjects(t, rig.SliceOf("rolling", "web", pods...))
	}
	close(stop)
	running.Wait()
	t.Log(load.MustBeClean(t))
	if len(book.orders) < 50 {
		t.Errorf("only %d orders arrived", len(book.orders))
	}
	for order, n := range book.orders {
		if n != 1 {
			t.Errorf("order %s arrived %d times", order, n)
		}
	}
}

// placeOrders sends one order after the other.
func placeOrders(t *testing.T, c *rig.Client, name string, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		reply, err := c.Do(t.Context(), http.MethodPost, "http://rolling.test/", strings.NewReader("order"), rig.Header("X-Order", fmt.Sprintf("%s-%d", name, n)))
		if err == nil {
			err = reply.Check(200, "web")
		}
		if err != nil {
			t.Errorf("order %s-%d: %v", name, n, err)
			return
		}
	}
}

// Pods that expose one named port under different numbers are all used (A21).
func TestNamedPortOfSeveralNumbers(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "numbers")
	one := rig.StartBackend(t, rig.BackendOptions{Service: "web"})
	other := rig.StartBackend(t, rig.BackendOptions{Service: "web", Address: rig.PodIP() + ":9090"})
	first, second := rig.SliceOf("numbers", "web", one), rig.SliceOf("numbers", "web", other)
	second.Name = "web-2"
	first.Ports[0].Name, second.Ports[0].Name = new("http"), new("http")
	lab.kube.ApplyObjects(t, rig.Service("numbers", "web", rig.ServicePort("http", 80)), first, second)
	lab.kube.Apply(t, ingress("numbers", "web", "numbers.test/ web:80"))
	client(t).Expect(t, wait, "http://numbers.test/", 200, "web")
	for range 10 {
		client(t).MustGet(t, "http://numbers.test/")
	}
	if one.Requests() < 3 || other.Requests() < 3 {
		t.Errorf("the pods got %d and %d requests", one.Requests(), other.Requests())
	}
}

// An Ingress without a class is nobody's, also after a class became the default;
// one that is created then is ours (A40).
func TestDefaultClass(t *testing.T) {
	t.Parallel()
	webService(t, "classless")
	without := func(name, host string) string {
		return strings.Replace(ingress("classless", name, host+"/ web:80"), "  ingressClassName: fairway\n", "", 1)
	}
	lab.kube.Apply(t, without("early", "early.classless.test"))
	lab.kube.Apply(t, ingress("classless", "other", "other.classless.test/ web:80"))
	client(t).Expect(t, wait, "http://other.classless.test/", 200, "web")
	lab.kube.Apply(t, `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairway-default, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: fairway.sh/ingress-controller}
`)
	// Admission learns of the class by a watch of its own.
	rig.Eventually(t, wait, func() error {
		lab.kube.Delete(t, without("late", "late.classless.test"))
		lab.kube.Apply(t, without("late", "late.classless.test"))
		ing, err := lab.kube.Client.NetworkingV1().Ingresses("classless").Get(t.Context(), "late", metav1.GetOptions{})
		if err == nil && ing.Spec.IngressClassName == nil {
			err = fmt.Errorf("the Ingress got no class")
		}
		return err
	}, "admission fills in the default class")
	client(t).Expect(t, soon, "http://late.classless.test/", 200, "web")
	if err := client(t).MustGet(t, "http://early.classless.test/").Check(404, ""); err != nil {
		t.Error(err)
	}
	lab.kube.Delete(t, "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: fairway-default}\n")
	client(t).Expect(t, soon, "http://late.classless.test/", 404, "")
}

// A host and path belong to the Ingress that claimed them first. Who comes later
// is told, takes nothing of it, and follows when the first one goes.
func TestHostTakeover(t *testing.T) {
	t.Parallel()
	site(t, "owner", "owned.test", 1)
	lab.kube.Namespace(t, "taker")
	lab.kube.ApplyObjects(t, rig.Service("taker", "evil"), rig.SliceOf("taker", "evil", rig.StartBackends(t, "evil", 1)...))
	lab.kube.Apply(t, ingress("taker", "web", "owned.test/ evil:80", "owned.test/admin evil:80"))
	client(t).Expect(t, wait, "http://owned.test/admin", 200, "evil")
	reported(t, "taker", "web", "PathConflict", "path / (Prefix) of host owned.test already belongs to Ingress owner/web")
	for range 20 {
		if err := client(t).MustGet(t, "http://owned.test/").Check(200, "web"); err != nil {
			t.Fatal(err)
		}
	}
	lab.kube.Delete(t, ingress("owner", "web"))
	client(t).Expect(t, soon, "http://owned.test/", 200, "evil")
}
