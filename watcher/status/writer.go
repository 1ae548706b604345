package status

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/kubernetes"

	"fairway/translator/model"
)

// component is the name under which Fairway writes: the source of its Events
// and the field manager of its statuses.
const component = "fairway"

// hold is how long a report must last before it becomes an Event. Applying an
// Ingress a moment before its Service is no mistake.
const hold = 500 * time.Millisecond

// Envoy acknowledges a change a moment before its workers act on it, so the
// address waits for activation after the acknowledgement. An Ingress that names
// something that is not known waits for patience: the watches of Services,
// EndpointSlices and Secrets may be behind that of Ingresses.
const (
	activation = 100 * time.Millisecond
	patience   = 2 * time.Second
)

// Options configures a Writer.
type Options struct {
	Client       kubernetes.Interface // nil: reports are logged, and nothing is written
	Source       model.Source
	Addresses    []string // IP addresses and host names at which Envoy is reached
	UpdateStatus bool     // write Addresses to the Ingresses that are served
	Logger       *slog.Logger
	Registerer   prometheus.Registerer // nil: metrics are kept but not registered
}

// Writer writes statuses and Events.
type Writer struct {
	o         Options
	log       *slog.Logger
	metrics   *metrics
	addresses []networkingv1.IngressLoadBalancerIngress // sorted
	statuses  *worker[model.Ref]
	events    *worker[model.Report]

	mu      sync.Mutex
	settled uint64                              // the last generation that an Envoy has acknowledged
	served  map[model.Ref]uint64                // our Ingresses; the generation from which on each was served
	waiting map[model.Ref]bool                  // those of served whose generation is not settled
	patient map[model.Ref]time.Time             // those of served that were never complete, and how long they wait for that
	former  map[model.Ref]bool                  // Ingresses that were ours and are to be cleared
	reports map[model.Ref]map[model.Report]bool // by the Ingress whose verdict has them
	raised  map[model.Report]int                // how many verdicts have the report
	told    map[model.Report]bool               // what Tell has to write
}

// New returns a Writer. It panics if its metrics are registered already.
func New(o Options) *Writer {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Writer{
		o: o, log: o.Logger, metrics: newMetrics(o.Registerer), addresses: entries(o.Addresses),
		served: map[model.Ref]uint64{}, waiting: map[model.Ref]bool{}, patient: map[model.Ref]time.Time{}, former: map[model.Ref]bool{},
		reports: map[model.Ref]map[model.Report]bool{}, raised: map[model.Report]int{}, told: map[model.Report]bool{},
	}
	w.statuses = newWorker("status is not written", 50, o.Logger, w.writeStatus)
	w.events = newWorker("event is not written", 20, o.Logger, w.writeEvent)
	return w
}

// writesStatus reports whether statuses are written at all. Without an address
// there is nothing to write, and what somebody else wrote is to stay.
func (w *Writer) writesStatus() bool {
	return w.o.Client != nil && w.o.UpdateStatus && len(w.addresses) > 0
}

// Run writes until ctx ends and then returns nil. It clears nothing at the end:
// Envoy goes on serving, and another replica or the next start takes over.
func (w *Writer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.statuses.run(ctx) })
	wg.Go(func() { w.events.run(ctx) })
	wg.Wait()
	return nil
}

// Conclude takes verdicts, each of which replaces the former one of its
// Ingress, and the generation of the publication that they came with. It does
// not block.
func (w *Writer) Conclude(verdicts []model.Verdict, generation uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range verdicts {
		v.Reports = shown(v.Reports)
		w.replaceReports(v)
		if w.writesStatus() {
			w.replaceVerdict(v, generation)
		}
	}
}

// maxReports bounds what is told about one Ingress. It may have thousands of
// paths, all with the same mistake, and the Events of others wait meanwhile.
const maxReports = 20

// shown returns the first reports and, in place of the rest, one that says that
// there are more. When some are gone, others take their place.
func shown(reports []model.Report) []model.Report {
	if len(reports) <= maxReports {
		return reports
	}
	more := model.Report{Object: reports[0].Object, Reason: "MoreReports", Severity: model.Warning, Message: "there are more reports than are shown: solve these first"}
	return append(slices.Clone(reports[:maxReports]), more)
}

// Tell writes reports once that belong to no verdict. It does not block.
func (w *Writer) Tell(reports []model.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range reports {
		if w.o.Client != nil && r.Object.Kind == model.Ingress {
			w.told[r] = true
			w.events.add(r)
		} else {
			w.logReport(slog.LevelWarn, "report", r)
		}
	}
}

// Settled says that an Envoy has acknowledged everything up to a generation.
func (w *Writer) Settled(generation uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled = max(w.settled, generation)
	for ref := range w.waiting {
		if w.served[ref] <= w.settled {
			delete(w.waiting, ref)
			w.schedule(ref)
		}
	}
}

// schedule writes the status of an Ingress that is served and settled as soon
// as it may be written. The caller holds w.mu.
func (w *Writer) schedule(ref model.Ref) {
	w.statuses.addAfter(ref, max(activation, time.Until(w.patient[ref])))
}

// replaceVerdict notes whether an Ingress is served. An Ingress that is served
// already keeps its first generation: it does work, and an Ingress that changes
// all the time must get its address too. The caller holds w.mu.
func (w *Writer) replaceVerdict(v model.Verdict, generation uint64) {
	ref := v.Ingress
	if !v.Served {
		if _, was := w.served[ref]; was {
			w.former[ref] = true
		}
		delete(w.served, ref)
		delete(w.waiting, ref)
		delete(w.patient, ref)
		w.statuses.add(ref)
		return
	}
	delete(w.former, ref)
	_, was := w.served[ref]
	_, patient := w.patient[ref]
	switch {
	case !was && v.Incomplete:
		w.patient[ref] = time.Now().Add(patience)
	case patient && !v.Incomplete:
		delete(w.patient, ref)
		was = false // from this generation on it works
	}
	if !was {
		w.served[ref] = generation
	}
	if w.served[ref] <= w.settled {
		w.schedule(ref)
		return
	}
	w.waiting[ref] = true
}

// replaceReports finds out which reports are new and which are gone. The caller
// holds w.mu.
func (w *Writer) replaceReports(v model.Verdict) {
	before, now := w.reports[v.Ingress], map[model.Report]bool{}
	for _, r := range v.Reports {
		if !now[r] && !before[r] {
			w.raise(r)
		}
		now[r] = true
	}
	for r := range before {
		if !now[r] {
			w.drop(r)
		}
	}
	if len(now) == 0 {
		delete(w.reports, v.Ingress)
		return
	}
	w.reports[v.Ingress] = now
}

func (w *Writer) raise(r model.Report) {
	w.raised[r]++
	if w.raised[r] > 1 {
		return
	}
	w.metrics.reports.WithLabelValues(r.Reason, string(r.Severity)).Inc()
	level := slog.LevelWarn
	if w.o.Client != nil && r.Object.Kind == model.Ingress {
		level = slog.LevelDebug
		w.events.addAfter(r, hold)
	}
	w.logReport(level, "report raised", r)
}

func (w *Writer) drop(r model.Report) {
	w.raised[r]--
	if w.raised[r] > 0 {
		return
	}
	delete(w.raised, r)
	w.metrics.reports.WithLabelValues(r.Reason, string(r.Severity)).Dec()
	level := slog.LevelInfo
	if w.o.Client != nil && r.Object.Kind == model.Ingress {
		level = slog.LevelDebug
	}
	w.logReport(level, "report gone", r)
}

func (w *Writer) logReport(level slog.Level, msg string, r model.Report) {
	w.log.Log(context.Background(), level, msg,
		"object", r.Object.String(), "reason", r.Reason, "severity", string(r.Severity), "field", r.Field, "text", r.Message)
}
