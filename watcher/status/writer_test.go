package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"fairway/translator/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = model.Ref{Kind: model.Ingress, Namespace: "a", Name: "web"}

// source reads Ingresses from the fake API server: a cache without any delay.
type source struct {
	model.Source
	client   *fake.Clientset
	barriers *sync.Map // model.Ref to a channel that is closed when the Ref is looked up
}

func (s source) Ingress(r model.Ref) *networkingv1.Ingress {
	if passed, ok := s.barriers.Load(r); ok {
		close(passed.(chan struct{}))
		return nil
	}
	obj, err := s.client.Tracker().Get(networkingv1.SchemeGroupVersion.WithResource("ingresses"), r.Namespace, r.Name)
	if err != nil {
		return nil
	}
	return obj.(*networkingv1.Ingress)
}

func (s source) Ingresses() iter.Seq[*networkingv1.Ingress] { return nil }

func ingress(addresses ...string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name, UID: "u"},
		Status:     networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: entries(addresses)}},
	}
}

type rig struct {
	t      *testing.T
	client *fake.Clientset
	source source
	w      *Writer
	logs   *logs
}

// start runs a Writer until the test ends.
func start(t *testing.T, o Options, objects ...runtime.Object) *rig {
	t.Helper()
	r := &rig{t: t, client: fake.NewClientset(objects...), logs: &logs{}}
	r.source = source{client: r.client, barriers: &sync.Map{}}
	o.Client, o.Source = r.client, r.source
	o.Logger = slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.w = New(o)
	run(t, r.w)
	return r
}

func run(t *testing.T, w *Writer) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
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

func served(reports ...model.Report) []model.Verdict {
	return []model.Verdict{{Ingress: web, Served: true, Reports: reports}}
}

func notServed() []model.Verdict { return []model.Verdict{{Ingress: web}} }

// actions lists what was asked of the API server: "patch ingresses/status".
func (r *rig) actions() []string {
	var out []string
	for _, a := range r.client.Actions() {
		name := a.GetVerb() + " " + a.GetResource().Resource
		if a.GetSubresource() != "" {
			name += "/" + a.GetSubresource()
		}
		out = append(out, name)
	}
	return out
}

// addresses returns what the status shows.
func (r *rig) addresses() string {
	ing := r.source.Ingress(web)
	if ing == nil {
		return "no ingress"
	}
	var out []string
	for _, e := range ing.Status.LoadBalancer.Ingress {
		out = append(out, e.IP+e.Hostname)
	}
	return strings.Join(out, " ")
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s; addresses %q, actions %q", what, r.addresses(), r.actions())
		}
	}
}

func (r *rig) expectAddresses(want string) {
	r.t.Helper()
	r.eventually("addresses "+want, func() bool { return r.addresses() == want })
}

// idle waits until everything that was enqueued is done.
func (r *rig) idle() {
	r.t.Helper()
	marker := model.Ref{Kind: model.Ingress, Namespace: "marker", Name: fmt.Sprint(time.Now().UnixNano())}
	passed := make(chan struct{})
	r.source.barriers.Store(marker, passed)
	r.w.statuses.addAfter(marker, activation) // behind everything that was added so far
	select {
	case <-passed:
	case <-time.After(5 * time.Second):
		r.t.Fatal("the worker is stuck")
	}
}

var two = Options{UpdateStatus: true, Addresses: []string{"lb.example.com", "192.0.2.2", "192.0.2.1", "192.0.2.1"}}

const twoShown = "lb.example.com 192.0.2.1 192.0.2.2"

func TestStatusWaitsForTheEnvoy(t *testing.T) {
	r := start(t, two, ingress())
	r.w.Conclude(served(), 5)
	r.w.Settled(4)
	r.w.statuses.add(web) // even if something else wakes the worker
	r.idle()
	if got := r.actions(); len(got) != 0 {
		t.Fatalf("before its generation was settled: %q", got)
	}
	r.w.Settled(6)
	r.expectAddresses(twoShown)
	r.w.Conclude(served(), 7)
	r.w.Settled(7)
	r.idle()
	if got, want := r.actions(), []string{"get ingresses", "patch ingresses/status"}; !slices.Equal(got, want) {
		t.Errorf("actions: got %q, want %q", got, want)
	}
}

// An Ingress that changes all the time is served from its first generation on.
// An Ingress that names something that is not known gets its address when that
// is known and acknowledged, or after a while without it.
func TestStatusWaitsForWhatTheIngressNames(t *testing.T) {
	incomplete := []model.Verdict{{Ingress: web, Served: true, Incomplete: true}}
	r := start(t, two, ingress())
	r.w.Settled(5)
	r.w.Conclude(incomplete, 5)
	r.idle()
	if got := r.actions(); len(got) != 0 {
		t.Fatalf("before it is complete: %q", got)
	}
	r.w.Conclude(served(), 6)
	r.idle()
	if got := r.actions(); len(got) != 0 {
		t.Fatalf("before that is settled: %q", got)
	}
	r.w.Settled(6)
	r.expectAddresses(twoShown)

	alone := start(t, two, ingress())
	alone.w.Settled(5)
	alone.w.Conclude(incomplete, 5)
	alone.expectAddresses(twoShown)
	alone.w.Conclude(incomplete, 6) // what was complete once, or long enough, stays
	alone.idle()
	alone.expectAddresses(twoShown)
}

func TestStatusIsNotPostponedByChanges(t *testing.T) {
	r := start(t, two, ingress())
	r.w.Conclude(served(), 5)
	r.w.Conclude(served(), 9)
	r.w.Settled(5)
	r.expectAddresses(twoShown)
}

func TestStatusIsNotRewritten(t *testing.T) {
	r := start(t, two, ingress("192.0.2.2", "192.0.2.1", "lb.example.com"))
	r.w.Settled(1)
	r.w.Conclude(served(), 1)
	r.idle()
	if got := r.actions(); len(got) != 0 {
		t.Errorf("actions: got %q, want none", got)
	}
}

func TestStatusClearedWhenTheClassMovesAway(t *testing.T) {
	r := start(t, two, ingress())
	r.w.Settled(1)
	r.w.Conclude(served(), 1)
	r.expectAddresses(twoShown)
	r.w.Conclude(notServed(), 2)
	r.expectAddresses("")
	r.w.Conclude(served(), 3)
	r.w.Settled(3)
	r.expectAddresses(twoShown)
}

func TestStatusOfOthersIsLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		name      string
		addresses []string
		before    bool // the Ingress was ours, and then somebody else wrote
	}{
		{"other address", []string{"203.0.113.1"}, false},
		{"the same addresses, written by somebody else", two.Addresses, false},
		{"rewritten by somebody else", []string{"203.0.113.1"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, two, ingress(tt.addresses...))
			if tt.before {
				r.w.Conclude(served(), 5) // never settled, so never written
			}
			before := r.addresses()
			r.w.Conclude(notServed(), 6)
			r.w.Settled(6)
			r.idle()
			if got := r.addresses(); got != before {
				t.Errorf("addresses: got %q, want %q", got, before)
			}
			if slices.Contains(r.actions(), "patch ingresses/status") {
				t.Errorf("actions: %q", r.actions())
			}
		})
	}
}

// After a restart the API server's record of writers tells what was ours.
func TestStatusClearedAfterRestart(t *testing.T) {
	ing := ingress(two.Addresses...)
	ing.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: component, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", APIVersion: "networking.k8s.io/v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:loadBalancer":{"f:ingress":{}}}}`)}}
	r := start(t, two, ing)
	r.w.Conclude(notServed(), 1)
	r.expectAddresses("")
}

func TestNothingToWrite(t *testing.T) {
	for name, o := range map[string]Options{
		"switched off": {Addresses: []string{"192.0.2.1"}},
		"no address":   {UpdateStatus: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, o, ingress("203.0.113.1"))
			r.w.Settled(1)
			r.w.Conclude(served(), 1)
			r.w.Conclude(notServed(), 2)
			r.idle()
			if got := r.actions(); len(got) != 0 {
				t.Errorf("actions: got %q, want none", got)
			}
		})
	}
}

func TestDeletedIngress(t *testing.T) {
	r := start(t, two)
	r.w.Settled(1)
	r.w.Conclude(served(), 1)
	r.w.Conclude(notServed(), 2)
	r.idle()
	if slices.Contains(r.actions(), "patch ingresses/status") || r.logs.String() != "" {
		t.Errorf("actions %q, logs %q", r.actions(), r.logs)
	}
}

// A conflict leads to a new attempt on the object as it is by then; other
// errors are tried again, and logged once.
func TestStatusIsTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		lines int
	}{
		{"conflict", apierrors.NewConflict(schema.GroupResource{Resource: "ingresses"}, "web", errors.New("changed")), 0},
		{"server error", apierrors.NewInternalError(errors.New("etcd")), 1},
		{"unreachable", errors.New("connection refused"), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, two, ingress())
			var mu sync.Mutex
			failures := 3
			r.client.PrependReactor("patch", "ingresses", func(clienttesting.Action) (bool, runtime.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				failures--
				return failures >= 0, nil, tt.err
			})
			r.w.Settled(1)
			r.w.Conclude(served(), 1)
			r.expectAddresses(twoShown)
			if got := strings.Count(r.logs.String(), "level=WARN"); got != tt.lines {
				t.Errorf("log lines: got %d, want %d: %s", got, tt.lines, r.logs)
			}
		})
	}
}

// The patch names the version it is based on, and nothing but the addresses.
func TestPatch(t *testing.T) {
	ing := ingress()
	ing.ResourceVersion = "41"
	r := start(t, Options{UpdateStatus: true, Addresses: []string{"192.0.2.1"}}, ing)
	bodies := make(chan string, 1)
	r.client.PrependReactor("patch", "ingresses", func(a clienttesting.Action) (bool, runtime.Object, error) {
		bodies <- string(a.(clienttesting.PatchAction).GetPatch())
		return false, nil, nil
	})
	r.w.Settled(1)
	r.w.Conclude(served(), 1)
	want := `{"metadata":{"resourceVersion":"41"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`
	if got := <-bodies; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func report(reason, field, text string) model.Report {
	return model.Report{Object: web, Reason: reason, Severity: model.Error, Field: field, Message: text}
}

// events returns "reason field message" of every Event, sorted.
func (r *rig) events() []string {
	list, err := r.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithKind("Event"), "a")
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range list.(*corev1.EventList).Items {
		out = append(out, fmt.Sprintf("%s %s", e.Reason, e.Message))
	}
	slices.Sort(out)
	return out
}

func (r *rig) count(action string) int {
	n := 0
	for _, a := range r.actions() {
		if a == action {
			n++
		}
	}
	return n
}

// An Ingress with very many reports does not hold up the Events of others.
func TestReportsAreBounded(t *testing.T) {
	var all []model.Report
	for i := range 5000 {
		all = append(all, report("ServiceNotFound", fmt.Sprintf("spec.rules[%04d]", i), "there is no Service"))
	}
	want := append(slices.Clone(all[:maxReports]), model.Report{Object: all[0].Object, Reason: "MoreReports", Severity: model.Warning,
		Message: "there are more reports than are shown: solve these first"})
	if got := shown(all); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := shown(all[:maxReports]); !slices.Equal(got, all[:maxReports]) {
		t.Errorf("got %v", got)
	}
	w := start(t, Options{}).w
	w.Conclude([]model.Verdict{{Ingress: all[0].Object, Served: true, Reports: all}}, 1)
	w.Conclude([]model.Verdict{{Ingress: all[0].Object, Served: true, Reports: all[1:]}}, 2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.raised) != maxReports+1 || w.raised[all[0]] != 0 || w.raised[all[maxReports]] != 1 {
		t.Errorf("%d reports are raised", len(w.raised))
	}
}

func TestEvents(t *testing.T) {
	r := start(t, Options{}, ingress())
	r.client.ClearActions()
	noService := report("ServiceNotFound", "spec.rules[0]", "there is no Service a/x")
	noSecret := report("SecretNotFound", "spec.tls[0]", "there is no Secret a/t")
	other := model.Report{Object: model.Ref{Kind: model.Service, Namespace: "a", Name: "x"}, Reason: "BadPort", Severity: model.Warning}
	r.w.Conclude(served(noService, noSecret, other, noService), 1)
	r.w.Conclude(served(noService, noSecret, other), 2)
	want := []string{"SecretNotFound spec.tls[0]: there is no Secret a/t", "ServiceNotFound spec.rules[0]: there is no Service a/x"}
	r.eventually("two Events", func() bool { return slices.Equal(r.events(), want) })
	if !strings.Contains(r.logs.String(), `msg="report raised" object="Service a/x" reason=BadPort severity=Warning`) {
		t.Errorf("the report on the Service is not logged: %s", r.logs)
	}

	r.w.Conclude(served(noSecret), 3)
	r.w.Conclude(served(noSecret, noService), 4)
	r.eventually("the Event that came back is renewed", func() bool { return r.count("patch events") == 1 })
	if got := r.events(); !slices.Equal(got, want) {
		t.Errorf("events: got %q, want %q", got, want)
	}
	if got := r.count("create events"); got != 3 {
		t.Errorf("creates: got %d, want 3", got)
	}
}

// What belongs to no verdict is written once, each time that it is told.
func TestTell(t *testing.T) {
	r := start(t, Options{}, ingress())
	refusal := report("RefusedByEnvoy", "", "no")
	r.w.Tell([]model.Report{refusal})
	r.eventually("the Event", func() bool { return slices.Equal(r.events(), []string{"RefusedByEnvoy no"}) })
	r.w.Conclude(served(), 1)
	r.w.Tell([]model.Report{refusal})
	r.eventually("it is renewed", func() bool { return r.count("patch events") == 1 })
}

// A report that is gone by the time it would be written is not written.
func TestShortLivedReport(t *testing.T) {
	r := start(t, Options{}, ingress())
	r.w.Conclude(served(report("ServiceNotFound", "", "x")), 1)
	r.w.Conclude(served(report("SecretNotFound", "", "y")), 2)
	r.eventually("the lasting one", func() bool { return len(r.events()) > 0 })
	if got, want := r.events(), []string{"SecretNotFound y"}; !slices.Equal(got, want) {
		t.Errorf("events: got %q, want %q", got, want)
	}
}

func TestEventIsRefused(t *testing.T) {
	r := start(t, Options{}, ingress())
	r.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "x", errors.New("no"))
	})
	r.w.Conclude(served(report("A", "", "x")), 1)
	r.eventually("one attempt", func() bool { return r.count("create events") == 1 })
	r.w.Conclude(served(report("A", "", "x"), report("B", "", "x")), 2)
	r.eventually("an attempt for the next report only", func() bool { return r.count("create events") >= 2 })
	if got := r.count("create events"); got != 2 || r.logs.String() != "" {
		t.Errorf("creates: got %d, want 2; logs %q", got, r.logs)
	}
}

func TestEventForm(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	long := ingress()
	long.Name = strings.Repeat("n", 253)
	e := eventOf(report("R", "spec", strings.Repeat("ä", 600)), long, now)
	if len(e.Name) != 253 || len(e.Message) > 1024 || !strings.HasSuffix(e.Message, "ä…") {
		t.Errorf("name of %d, message of %d bytes ending in %q", len(e.Name), len(e.Message), e.Message[len(e.Message)-8:])
	}
	got, err := json.Marshal(eventOf(report("R", "spec.x", "spec.x is bad"), ingress(), now))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"name":"` + eventName(report("R", "spec.x", "spec.x is bad"), ingress()) + `","namespace":"a"},` +
		`"involvedObject":{"kind":"Ingress","namespace":"a","name":"web","uid":"u","apiVersion":"networking.k8s.io/v1"},` +
		`"reason":"R","message":"spec.x is bad","source":{"component":"fairway"},"firstTimestamp":"2026-05-04T03:02:01Z","lastTimestamp":"2026-05-04T03:02:01Z",` +
		`"count":1,"type":"Warning","eventTime":null,"reportingComponent":"fairway","reportingInstance":""}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The name of an Event is one that the API server takes, whatever the Ingress's.
func TestEventName(t *testing.T) {
	for _, name := range []string{"web", strings.Repeat("a", 253), strings.Repeat("a", 235) + ".b", strings.Repeat("a", 234) + "--b", strings.Repeat("a.b-", 63)} {
		ing := ingress()
		ing.Name = name
		if got := eventName(report("R", "f", "m"), ing); len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("%s: %v", got, validation.IsDNS1123Subdomain(got))
		}
	}
}

func TestWithoutClient(t *testing.T) {
	l := &logs{}
	w := New(Options{Logger: slog.New(slog.NewTextHandler(l, nil)), UpdateStatus: true, Addresses: []string{"192.0.2.1"}})
	run(t, w)
	w.Settled(1)
	w.Conclude(served(report("A", "spec", "x")), 1)
	w.Conclude(served(report("A", "spec", "x")), 2)
	w.Conclude(served(), 3)
	if strings.Count(l.String(), `msg="report raised" object="Ingress a/web" reason=A severity=Error field=spec text=x`) != 1 ||
		strings.Count(l.String(), `msg="report gone" object="Ingress a/web" reason=A`) != 1 {
		t.Errorf("logs: %s", l)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := start(t, Options{UpdateStatus: true, Addresses: []string{"192.0.2.1"}, Registerer: reg}, ingress())
	r.w.Settled(1)
	r.w.Conclude(served(report("A", "", "x"), report("A", "", "y"), report("B", "", "x")), 1)
	r.expectAddresses("192.0.2.1")
	r.eventually("three Events", func() bool { return len(r.events()) == 3 })
	r.w.Conclude(served(report("A", "", "x")), 1)
	want := `
# HELP fairway_reports Reports that hold at present, by reason and severity.
# TYPE fairway_reports gauge
fairway_reports{reason="A",severity="Error"} 1
fairway_reports{reason="B",severity="Error"} 0
# HELP fairway_status_events_total Events written for reports, by reason.
# TYPE fairway_status_events_total counter
fairway_status_events_total{reason="A"} 2
fairway_status_events_total{reason="B"} 1
# HELP fairway_status_writes_total Writes of an Ingress's status.
# TYPE fairway_status_writes_total counter
fairway_status_writes_total 1
`
	r.eventually("metrics", func() bool { return testutil.GatherAndCompare(reg, strings.NewReader(want)) == nil })
}
