package watcher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"fairway/translator/model"
)

// singles is the table of kinds that are watched one object at a time. Fairway
// never lists the Secrets of a cluster, and never sees one that is not TLS
// unless something refers to it.
var singles = map[model.Kind]*kind{
	model.Secret: {
		name: string(model.Secret), ref: model.Secret, exempt: true,
		informer: coreinformers.NewFilteredSecretInformer,
	},
	model.ConfigMap: {
		name: string(model.ConfigMap), ref: model.ConfigMap, exempt: true,
		informer: coreinformers.NewFilteredConfigMapInformer,
	},
}

// maxFollowed bounds the watches that objects can cause: each costs about 100 KiB
// and a request that stays open, and one Ingress can name tens of thousands of
// Secrets. A TLS Secret beyond it is still found by the standing informer.
const maxFollowed = 1000

// followed holds the single-object watches.
type followed struct {
	mu     sync.RWMutex
	items  map[model.Ref]*observed
	pinned map[model.Ref]bool // named by the options: never dropped
}

func newFollowed() *followed {
	return &followed{items: map[model.Ref]*observed{}, pinned: map[model.Ref]bool{}}
}

// get returns the object, or nil while it is not known or does not exist.
func (f *followed) get(ref model.Ref) any {
	f.mu.RLock()
	ob := f.items[ref]
	f.mu.RUnlock()
	if ob == nil {
		return nil
	}
	obj, _, _ := ob.informer.GetStore().GetByKey(ref.Namespace + "/" + ref.Name) // the error is always nil
	return obj
}

func (f *followed) pin(ref model.Ref, ob *observed) {
	f.items[ref], f.pinned[ref] = ob, true
}

// unpinned returns the watches that Follow started.
func (f *followed) unpinned() []*observed {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []*observed
	for ref, ob := range f.items {
		if !f.pinned[ref] {
			out = append(out, ob)
		}
	}
	return out
}

// size returns how many objects of a kind are known.
func (f *followed) size(k model.Kind) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := 0
	for ref, ob := range f.items {
		if ref.Kind == k {
			n += len(ob.informer.GetStore().ListKeys())
		}
	}
	return n
}

// Follow takes the Secrets and ConfigMaps that objects refer to now. Those that
// no standing informer holds are watched one by one; a watch whose object is no
// longer among refs ends. Until its first answer an object counts as absent; it
// becomes dirty when it is known. Follow does not wait for anything. Of more refs
// than maxFollowed the rest counts as absent.
//
// A TLS Secret that does not exist yet is watched alone as well, because only
// its arrival tells that the standing informer will hold it.
func (w *Watcher) Follow(refs []model.Ref) {
	wanted := map[model.Ref]bool{}
	for _, ref := range refs {
		if singles[ref.Kind] != nil && !w.held(ref) {
			wanted[ref] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.store.followed
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.items, func(ref model.Ref, ob *observed) bool {
		drop := !wanted[ref] && !f.pinned[ref]
		if drop && ob.cancel != nil {
			ob.cancel()
		}
		return drop
	})
	for _, ref := range slices.SortedFunc(maps.Keys(wanted), w.compareNeed) {
		if f.items[ref] != nil {
			continue
		}
		if len(f.items)-len(f.pinned) >= maxFollowed {
			w.log.Warn("too many objects to follow", "wanted", len(wanted), "limit", maxFollowed)
			break
		}
		ob, err := w.single(ref)
		if err != nil {
			w.log.Error("object cannot be followed", "kind", ref.Kind, "ref", ref, "err", err)
			continue
		}
		f.items[ref] = ob
		if w.ctx != nil {
			w.start(ob)
		}
	}
}

// compareNeed orders first what no standing informer would ever hold, which only
// flags of the operator name.
func (w *Watcher) compareNeed(a, b model.Ref) int {
	rank := func(r model.Ref) int {
		if t := w.store.tables[string(r.Kind)]; t == nil || t.of(r.Namespace) == nil || !w.store.visible(r.Namespace) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}

// held reports whether a standing informer has the object.
func (w *Watcher) held(ref model.Ref) bool {
	if w.store.tables[string(ref.Kind)] == nil || !w.store.visible(ref.Namespace) {
		return false
	}
	return w.store.tables[string(ref.Kind)].get(ref.Namespace, ref.Name) != nil
}

// single prepares the watch of one object.
func (w *Watcher) single(ref model.Ref) (*observed, error) {
	base := singles[ref.Kind]
	if base == nil || ref.Namespace == "" || ref.Name == "" {
		return nil, fmt.Errorf("%s cannot be watched alone", ref)
	}
	k := *base
	k.selector = func(_ Options, l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()
	}
	ob, err := w.observe(&k, k.build(w.o, ref.Namespace))
	if err != nil {
		return nil, err
	}
	ob.what = ref.String()
	return ob, nil
}
