package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"fairway/translator/model"
)

// observed is one informer and what is known about its health.
type observed struct {
	what     string // kind, and the object if there is only one
	informer cache.SharedIndexInformer
	synced   cache.DoneChecker // of the handler: every initial object was processed
	cancel   context.CancelFunc

	mu      sync.Mutex
	failure string // the last error of its list or watch
	version string // what the informer had seen at that time
}

// observe attaches the transform and the handlers to an informer.
func (w *Watcher) observe(k *kind, informer cache.SharedIndexInformer) (*observed, error) {
	ob := &observed{what: k.name, informer: informer}
	if err := informer.SetTransform(strip); err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.failed(ob, err)
	}); err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.changed(k, nil, obj) },
		UpdateFunc: func(before, after any) { w.changed(k, before, after) },
		DeleteFunc: func(obj any) { w.changed(k, obj, nil) },
	})
	if err != nil {
		return nil, err
	}
	ob.synced = registration.HasSyncedChecker()
	return ob, nil
}

// changed enqueues what one event makes dirty. before is nil for an addition,
// after for a deletion.
func (w *Watcher) changed(k *kind, before, after any) {
	w.metrics.events.WithLabelValues(k.name).Inc()
	if gone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = gone.Obj
	}
	if before != nil && after != nil && unchanged(before, after) {
		return
	}
	w.enqueue(k, before, after)
	if k.ref == model.Namespace {
		w.reselect(before, after)
	}
}

// enqueue makes dirty what the object was and what it is now. What it is now
// does not matter while its Namespace is not selected: it is in the store, where
// reselect will find it. What it was is nowhere to be found later, so it always
// counts: the Namespace may have fallen out of the selection a moment ago.
func (w *Watcher) enqueue(k *kind, before, after any) {
	var was model.Ref
	if before != nil {
		was = k.refOf(before.(metav1.Object))
	}
	if after != nil {
		now := k.refOf(after.(metav1.Object))
		if now.Name != "" && (k.exempt || w.store.visible(now.Namespace)) {
			w.o.Queue.Add(k.lane, now)
		}
		if now == was {
			return
		}
	}
	if was.Name != "" {
		w.o.Queue.Add(k.lane, was)
	}
}

// reselect makes every object of a Namespace dirty if the Namespace came into
// or fell out of the selection.
func (w *Watcher) reselect(before, after any) {
	was, is := w.selects(before), w.selects(after)
	if was == is {
		return
	}
	obj := after
	if obj == nil {
		obj = before
	}
	namespace := obj.(*corev1.Namespace).Name
	for i := range kinds {
		k := &kinds[i]
		if k.cluster {
			continue
		}
		for _, obj := range w.store.tables[k.name].index(cache.NamespaceIndex, namespace, namespace) {
			w.enqueue(k, obj, nil)
		}
	}
}

// selects reports whether a Namespace, which may be nil, is selected.
func (w *Watcher) selects(obj any) bool {
	n, ok := obj.(*corev1.Namespace)
	return ok && w.store.selector.Matches(labels.Set(n.Labels))
}

// failed notes that a list or watch ended with an error, and logs it when it
// is another one than before or when the informer had made progress since.
// client-go goes on trying; what is in the store stays.
func (w *Watcher) failed(ob *observed, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		w.log.Debug("watch ended", "kind", ob.what, "err", err)
		return
	}
	version := ob.informer.LastSyncResourceVersion()
	ob.mu.Lock()
	news := ob.failure != err.Error() || ob.version != version
	ob.failure, ob.version = err.Error(), version
	ob.mu.Unlock()
	if news {
		w.log.Warn("watch failed", "kind", ob.what, "err", err)
	}
}

// describe names the informer and the error that keeps it from syncing.
func (ob *observed) describe() string {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	if ob.failure == "" {
		return ob.what
	}
	return fmt.Sprintf("%s: %s", ob.what, ob.failure)
}
