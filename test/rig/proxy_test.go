package rig

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

func testProxy(t *testing.T, k *Kube) {
	p := StartProxy(t, k)
	client := clientFrom(t, p.Kubeconfig)
	// client-go asks again after a lost connection, hence the short deadline.
	list := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := client.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
		return err
	}
	if err := list(); err != nil {
		t.Fatalf("without faults: %v", err)
	}
	if !slices.Contains(p.Seen(), "GET /api/v1/namespaces/default/services") {
		t.Errorf("seen = %v", p.Seen())
	}
	for _, c := range []struct {
		name  string
		fault Fault
		right func(error) bool
	}{
		{"forbidden", Fault{Path: "/services", Status: http.StatusForbidden}, apierrors.IsForbidden},
		{"gone", Fault{Status: http.StatusGone, Methods: []string{"POST", "GET"}}, apierrors.IsResourceExpired},
		{"other path", Fault{Path: "/secrets", Status: http.StatusForbidden}, func(err error) bool { return err == nil }},
		{"other method", Fault{Methods: []string{"POST"}, Reset: true}, func(err error) bool { return err == nil }},
		{"delay", Fault{Delay: 5 * time.Second}, func(err error) bool { return err != nil }},
		{"hang", Fault{Hang: true}, func(err error) bool { return err != nil }},
		{"reset", Fault{Reset: true}, func(err error) bool { return err != nil }},
		{"cut", Fault{CutAfter: 10}, func(err error) bool { return err != nil }},
		{"once", Fault{Times: 1, Status: http.StatusInternalServerError}, apierrors.IsInternalError},
	} {
		p.Set(t, c.fault)
		if err := list(); !c.right(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := list(); err != nil {
		t.Errorf("after a fault that happens once: %v", err)
	}
	testProxiedWatch(t, p, client)
}

// testProxiedWatch shows that events pass at once and that Drop ends watches.
func testProxiedWatch(t *testing.T, p *Proxy, client kubernetes.Interface) {
	p.Clear()
	w, err := client.CoreV1().ConfigMaps("default").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p.kube.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: watched}\n")
	for e := range within(t, w, 5*time.Second) {
		if e.Type == watch.Added {
			break
		}
	}
	p.Drop()
	for range within(t, w, 5*time.Second) {
		continue
	}
}

// within yields events until the watch ends and fails the test if it takes
// longer than the timeout.
func within(t *testing.T, w watch.Interface, timeout time.Duration) func(func(watch.Event) bool) {
	return func(yield func(watch.Event) bool) {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		for {
			select {
			case e, ok := <-w.ResultChan():
				if !ok || !yield(e) {
					return
				}
			case <-timer.C:
				t.Errorf("watch: nothing happened within %s", timeout)
				return
			}
		}
	}
}
