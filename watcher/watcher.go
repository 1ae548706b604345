package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"fairway/translator/model"
)

// Options configures a Watcher.
type Options struct {
	Client     kubernetes.Interface
	Queue      *Queue // gets the keys of what changes
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept but not registered

	Namespaces        []string    // only objects in these; empty: all
	NamespaceSelector string      // only objects in Namespaces with these labels; excludes Namespaces
	ServiceSelector   string      // only Services and EndpointSlices with these labels
	ConfigMaps        []model.Ref // always watched, wherever they are; readiness waits for them
}

// Watcher keeps the objects of one cluster in memory.
type Watcher struct {
	o        Options
	log      *slog.Logger
	store    *store
	standing []*observed
	metrics  *metrics

	mu  sync.Mutex
	ctx context.Context // of Run; nil before it, and after it has ended
	wg  sync.WaitGroup  // of informers; not added to unless ctx is set
}

// New checks the options and prepares the informers. It does no I/O.
func New(o Options) (*Watcher, error) {
	if o.Client == nil || o.Queue == nil {
		return nil, errors.New("watcher: Client and Queue are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	selector, err := selectors(&o)
	if err != nil {
		return nil, err
	}
	w := &Watcher{o: o, log: o.Logger}
	w.store = &store{tables: map[string]table{}, followed: newFollowed(), selector: selector}
	if err := w.build(); err != nil {
		return nil, fmt.Errorf("preparing informers: %w", err)
	}
	if w.metrics, err = newMetrics(o.Registerer, w.store.sizes()); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return w, nil
}

// selectors normalises the namespace list and parses the selectors. It returns
// the one for Namespaces, nil if there is none.
func selectors(o *Options) (labels.Selector, error) {
	o.Namespaces = slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
	if slices.Contains(o.Namespaces, metav1.NamespaceAll) {
		o.Namespaces = nil
	}
	if _, err := labels.Parse(o.ServiceSelector); err != nil {
		return nil, fmt.Errorf("service selector %q: %w", o.ServiceSelector, err)
	}
	if o.NamespaceSelector == "" {
		return nil, nil
	}
	if len(o.Namespaces) > 0 {
		return nil, errors.New("a list of namespaces and a namespace selector exclude each other")
	}
	selector, err := labels.Parse(o.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("namespace selector %q: %w", o.NamespaceSelector, err)
	}
	return selector, nil
}

// build makes the standing informers: those of the table and the ConfigMaps
// that the options name.
func (w *Watcher) build() error {
	for i := range kinds {
		k := &kinds[i]
		if k.optional && w.store.selector == nil {
			continue
		}
		t := table{}
		for _, namespace := range k.scopes(w.o) {
			informer := k.build(w.o, namespace)
			t[namespace] = informer.GetIndexer()
			ob, err := w.observe(k, informer)
			if err != nil {
				return err
			}
			w.standing = append(w.standing, ob)
		}
		w.store.tables[k.name] = t
	}
	for _, ref := range w.o.ConfigMaps {
		ob, err := w.single(ref)
		if err != nil {
			return err
		}
		w.standing = append(w.standing, ob)
		w.store.followed.pin(ref, ob)
	}
	return nil
}

// Source gives the present objects.
func (w *Watcher) Source() model.Source { return w.store }

// Run watches until ctx ends and then returns nil. It calls the Queue's Synced
// once every object that existed at the start has passed its handler.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.wg.Wait()
	defer w.close()
	defer cancel()

	w.mu.Lock()
	w.ctx = ctx
	for _, ob := range w.standing {
		w.start(ob)
	}
	for _, ob := range w.store.followed.unpinned() {
		w.start(ob)
	}
	w.mu.Unlock()

	for _, ob := range w.standing {
		select {
		case <-ctx.Done():
			return nil
		case <-ob.synced.Done():
		}
	}
	w.metrics.synced.Set(1)
	w.log.Info("objects synced")
	w.o.Queue.Synced()
	<-ctx.Done()
	return nil
}

// start runs an informer until Run ends or the informer is cancelled. The
// caller holds w.mu, and w.ctx is set.
func (w *Watcher) start(ob *observed) {
	ctx, cancel := context.WithCancel(w.ctx)
	ob.cancel = cancel
	w.wg.Go(func() { ob.informer.RunWithContext(ctx) })
}

// close forbids further starts, so that waiting for what was started ends.
func (w *Watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = nil
}

// Pending names the kinds that have not synced yet, each with the error that
// keeps it from doing so, if any. It is empty once the Watcher is ready.
func (w *Watcher) Pending() []string {
	var out []string
	for _, ob := range w.standing {
		if !cache.IsDone(ob.synced) {
			out = append(out, ob.describe())
		}
	}
	return out
}
