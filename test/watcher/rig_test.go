package watcher_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairway/test/rig"
	"fairway/translator/model"
	"fairway/watcher"
)

// soon is how long what has no reason to wait may take on a busy machine.
const soon = 10 * time.Second

var ctx = context.Background()

// running is a Watcher at work and the set of what was dirty so far.
type running struct {
	t      *testing.T
	client kubernetes.Interface
	queue  *watcher.Queue
	w      *watcher.Watcher
	src    model.Source
	logs   *logs

	mu    sync.Mutex
	taken int // how often Take returned
	dirty map[string]bool
}

type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs a Watcher, and a consumer of its queue, until the test ends. Then
// nothing of them may be left.
func start(t *testing.T, cfg *rest.Config, o watcher.Options) *running {
	t.Helper()
	r := &running{t: t, queue: watcher.NewQueue(time.Millisecond, 10*time.Millisecond), logs: &logs{}, dirty: map[string]bool{}}
	log := slog.New(slog.NewTextHandler(r.logs, nil))
	alive := goleak.IgnoreCurrent()
	cfg = watcher.Tune(cfg, watcher.ClientOptions{Version: "test", Logger: log, Patient: true})
	transport := connect(t, r, cfg)
	o.Client, o.Queue, o.Logger = r.client, r.queue, log
	w, err := watcher.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.w, r.src = w, w.Source()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	wg.Go(func() { r.consume(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		rig.Eventually(t, soon, func() error {
			utilnet.CloseIdleConnectionsFor(transport)
			utilnet.CloseIdleConnectionsFor(kube.Client.Discovery().RESTClient().(*rest.RESTClient).Client.Transport)
			return goleak.Find(alive, ofOthers("watcher_test.(*proxy).accept"), ofOthers("watcher_test.(*proxy).serve"),
				ofOthers("watcher_test.(*proxy).copy"), ofOthers("rig.(*process).start.func1"))
		}, "nothing of the watcher is left")
		if t.Failed() {
			t.Logf("log:\n%s", r.logs)
		}
	})
	return r
}

// ofOthers makes goleak overlook goroutines of the proxy and of the rig, which
// end later.
func ofOthers(function string) goleak.Option {
	return goleak.IgnoreAnyFunction("fairway/test/" + function)
}

// connect makes the client; it returns the transport, to close it.
func connect(t *testing.T, r *running, cfg *rest.Config) http.RoundTripper {
	t.Helper()
	// A transport of its own: client-go would share one with other clients.
	cfg.Dial = (&dialer{}).DialContext
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.client, err = kubernetes.NewForConfigAndClient(cfg, client); err != nil {
		t.Fatal(err)
	}
	return client.Transport
}

func (r *running) consume(ctx context.Context) {
	for {
		d, _, err := r.queue.Take(ctx)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.taken++
		for ref := range d.Endpoints {
			r.dirty["endpoints "+ref.String()] = true
		}
		for ref := range d.Config {
			r.dirty["config "+ref.String()] = true
		}
		r.mu.Unlock()
	}
}

// ready waits until the consumer got the first Dirty.
func (r *running) ready() *running {
	r.t.Helper()
	rig.Eventually(r.t, 30*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.taken == 0 {
			return fmt.Errorf("pending: %q", r.w.Pending())
		}
		return nil
	}, "the watcher is ready")
	return r
}

// forget empties the set of what was dirty.
func (r *running) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.dirty)
}

// seen returns what was dirty since the last forget.
func (r *running) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.dirty))
}

// expect waits until exactly these were dirty since the last call.
func (r *running) expect(d time.Duration, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	rig.Eventually(r.t, d, func() error {
		if got := r.seen(); !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	}, "dirty")
	r.forget()
}

// addresses returns the addresses of a Service's endpoints, sorted.
func (r *running) addresses(namespace, service string) string {
	var out []string
	for _, s := range r.src.Slices(model.Ref{Kind: model.Service, Namespace: namespace, Name: service}) {
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func ref(kind model.Kind, namespace, name string) model.Ref {
	return model.Ref{Kind: kind, Namespace: namespace, Name: name}
}

func ingress(namespace, name, class string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			Rules: []networkingv1.IngressRule{{
				Host: name + ".example.com",
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: &prefix,
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
				}}}},
			}},
		},
	}
}
