package watcher_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/test/rig"
	"fairway/translator/model"
	"fairway/watcher"
	"fairway/watcher/status"
)

// newWriter runs a status writer on a Watcher's source until stop is called.
func newWriter(t *testing.T, r *running) (w *status.Writer, stop func()) {
	t.Helper()
	w = status.New(status.Options{
		Client: r.client, Source: r.src, UpdateStatus: true, Addresses: []string{"192.0.2.9", "lb.example.com"},
		Logger: slog.New(slog.NewTextHandler(r.logs, nil)),
	})
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return w, stop
}

func get(t *testing.T, namespace, name string) *networkingv1.Ingress {
	t.Helper()
	ing, err := kube.Client.NetworkingV1().Ingresses(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ing
}

func shown(ing *networkingv1.Ingress) string {
	var out []string
	for _, e := range ing.Status.LoadBalancer.Ingress {
		out = append(out, e.IP+e.Hostname)
	}
	return strings.Join(out, " ")
}

func expectShown(t *testing.T, namespace, name, want string) {
	t.Helper()
	rig.Eventually(t, soon, func() error {
		if got := shown(get(t, namespace, name)); got != want {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	}, "status of "+name)
}

const address = "lb.example.com 192.0.2.9"

// The address is written once, with nothing else of the object, survives a
// restart, and goes away when the class does.
func TestStatus(t *testing.T) {
	ns := kube.Namespace(t, "status")
	web := ref(model.Ingress, ns, "web")
	ing := ingress(ns, "web", "fairway")
	ing.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}
	ing.Labels = map[string]string{"l": "m"}
	kube.ApplyObjects(t, ing)
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	r.forget()

	w, stop := newWriter(t, r)
	w.Conclude([]model.Verdict{{Ingress: web, Served: true}}, 3)
	w.Settled(2)
	if got := shown(get(t, ns, "web")); got != "" {
		t.Errorf("before its generation was settled: %q", got)
	}
	w.Settled(3)
	expectShown(t, ns, "web", address)
	written := get(t, ns, "web")
	if written.Annotations[corev1.LastAppliedConfigAnnotation] != "{}" || written.Labels["l"] != "m" || len(written.ManagedFields) != 2 {
		t.Errorf("the write changed more than the status: %+v", written.ObjectMeta)
	}
	rig.Eventually(t, soon, func() error {
		if got := shown(r.src.Ingress(web)); got != address {
			return fmt.Errorf("got %q", got)
		}
		return nil
	}, "the watcher sees the status")
	w.Conclude([]model.Verdict{{Ingress: web, Served: true}}, 4)
	w.Settled(4)
	stop()
	if got := shown(get(t, ns, "web")); got != address {
		t.Errorf("after the end: %q", got)
	}
	kube.ApplyObjects(t, rig.Service(ns, "marker"))
	r.expect(soon, "config Service status/marker") // a status is no change

	w, _ = newWriter(t, r)
	w.Conclude([]model.Verdict{{Ingress: web, Served: true}}, 1)
	w.Settled(1)
	other := ref(model.Ingress, ns, "other")
	kube.ApplyObjects(t, ingress(ns, "other", "fairway"))
	r.expect(soon, "config Ingress status/other")
	w.Conclude([]model.Verdict{{Ingress: other, Served: true}}, 1)
	expectShown(t, ns, "other", address) // web, which came first, is done too
	if got := get(t, ns, "web").ResourceVersion; got != written.ResourceVersion {
		t.Error("the status was written again without a change")
	}
}

// Whose address is removed: only ours, also after a restart.
func TestStatusCleared(t *testing.T) {
	ns := kube.Namespace(t, "cleared")
	kube.ApplyObjects(t, ingress(ns, "web", "fairway"), ingress(ns, "foreign", "nginx"))
	foreign := get(t, ns, "foreign")
	foreign.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb.example.com"}, {IP: "192.0.2.9"}}
	if _, err := kube.Client.NetworkingV1().Ingresses(ns).UpdateStatus(ctx, foreign, metav1.UpdateOptions{FieldManager: "nginx"}); err != nil {
		t.Fatal(err)
	}
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	w, stop := newWriter(t, r)
	web := ref(model.Ingress, ns, "web")
	w.Settled(1)
	w.Conclude([]model.Verdict{{Ingress: web, Served: true}}, 1)
	expectShown(t, ns, "web", address)
	stop()
	rig.Eventually(t, soon, func() error {
		if got := shown(r.src.Ingress(web)); got != address {
			return fmt.Errorf("got %q", got)
		}
		return nil
	}, "the watcher sees the status")

	w, _ = newWriter(t, r) // a restart: it has served nothing yet
	w.Conclude([]model.Verdict{{Ingress: ref(model.Ingress, ns, "foreign")}, {Ingress: web}}, 1)
	expectShown(t, ns, "web", "")
	if got := shown(get(t, ns, "foreign")); got != address {
		t.Errorf("the status of another controller: %q", got)
	}
}

// events returns "reason message" of the Events of an Ingress, sorted.
func events(t *testing.T, namespace, name string) []string {
	t.Helper()
	list, err := kube.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, fmt.Sprintf("%s %s %s %s", e.Type, e.Source.Component, e.Reason, e.Message))
	}
	slices.Sort(out)
	return out
}

func TestEvents(t *testing.T) {
	ns := kube.Namespace(t, "events")
	kube.ApplyObjects(t, ingress(ns, "web", "fairway"))
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	w, stop := newWriter(t, r)
	web := ref(model.Ingress, ns, "web")
	verdict := func(reports ...model.Report) []model.Verdict {
		return []model.Verdict{{Ingress: web, Served: true, Reports: reports}}
	}
	a := model.Report{Object: web, Reason: "ServiceNotFound", Severity: model.Error, Field: "spec.rules[0]", Message: "there is no Service"}
	b := a
	b.Message = "there is no other Service"
	for g := range uint64(3) {
		w.Conclude(verdict(a, b), g)
	}
	want := []string{
		"Warning fairway ServiceNotFound spec.rules[0]: there is no Service",
		"Warning fairway ServiceNotFound spec.rules[0]: there is no other Service",
	}
	expect := func(what string) {
		t.Helper()
		rig.Eventually(t, soon, func() error {
			if got := events(t, ns, "web"); !slices.Equal(got, want) {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		}, what)
	}
	expect("two reports")
	stop()

	w, _ = newWriter(t, r) // a restart renews the Events that still hold
	before := lastSeen(t, ns)
	time.Sleep(time.Until(before.Add(time.Second))) // the time of an Event is in whole seconds
	w.Conclude(verdict(a), 1)
	rig.Eventually(t, soon, func() error {
		if !lastSeen(t, ns).After(before) {
			return fmt.Errorf("last seen at %v", before)
		}
		return nil
	}, "the Event is renewed")
	expect("after a restart")
}

// lastSeen returns the latest time of the Events in a namespace.
func lastSeen(t *testing.T, namespace string) time.Time {
	t.Helper()
	list, err := kube.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for _, e := range list.Items {
		if e.LastTimestamp.After(last) {
			last = e.LastTimestamp.Time
		}
	}
	return last
}
