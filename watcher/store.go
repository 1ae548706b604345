package watcher

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"fairway/translator/model"
)

// table holds the stores of one kind: one for the whole cluster under "", or
// one for each watched namespace.
type table map[string]cache.Indexer

// of returns the store that holds a namespace's objects, or nil.
func (t table) of(namespace string) cache.Indexer {
	if all, ok := t[""]; ok {
		return all
	}
	return t[namespace]
}

// get returns the object with this name, or nil.
func (t table) get(namespace, name string) any {
	store := t.of(namespace)
	if store == nil {
		return nil
	}
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	obj, _, _ := store.GetByKey(key) // the error is always nil: see cache.Store
	return obj
}

// index returns the objects in a namespace with this value of an index.
func (t table) index(index, namespace, value string) []any {
	store := t.of(namespace)
	if store == nil {
		return nil
	}
	objs, _ := store.ByIndex(index, value) // fails only for an index that does not exist
	return objs
}

// size returns the number of objects.
func (t table) size() int {
	n := 0
	for _, store := range t {
		n += len(store.ListKeys())
	}
	return n
}

// store is the model.Source over the informers' stores.
type store struct {
	tables   map[string]table // by name of the kind
	followed *followed
	selector labels.Selector // of Namespaces; nil: all
}

// sizes returns a function for each kind that counts its objects.
func (s *store) sizes() map[string]func() int {
	out := map[string]func() int{}
	for name, t := range s.tables {
		out[name] = t.size
	}
	for ref, k := range singles {
		standing := s.tables[k.name]
		out[k.name] = func() int { return standing.size() + s.followed.size(ref) }
	}
	return out
}

// visible reports whether objects of the namespace are to be seen.
func (s *store) visible(namespace string) bool {
	if s.selector == nil || namespace == "" {
		return true
	}
	n := s.Namespace(namespace)
	return n != nil && s.selector.Matches(labels.Set(n.Labels))
}

// lookup returns a visible object of a standing informer, or nil.
func lookup[T any](s *store, kind, namespace, name string) *T {
	if !s.visible(namespace) {
		return nil
	}
	obj, _ := s.tables[kind].get(namespace, name).(*T)
	return obj
}

func (s *store) Ingress(r model.Ref) *networkingv1.Ingress {
	return lookup[networkingv1.Ingress](s, string(model.Ingress), r.Namespace, r.Name)
}

func (s *store) Ingresses() iter.Seq[*networkingv1.Ingress] {
	return func(yield func(*networkingv1.Ingress) bool) {
		for _, t := range s.tables[string(model.Ingress)] {
			for _, obj := range t.List() {
				ing := obj.(*networkingv1.Ingress)
				if s.visible(ing.Namespace) && !yield(ing) {
					return
				}
			}
		}
	}
}

func (s *store) Service(r model.Ref) *corev1.Service {
	return lookup[corev1.Service](s, string(model.Service), r.Namespace, r.Name)
}

func (s *store) Slices(service model.Ref) []*discoveryv1.EndpointSlice {
	if !s.visible(service.Namespace) {
		return nil
	}
	objs := s.tables[sliceKind].index(byService, service.Namespace, service.Namespace+"/"+service.Name)
	out := make([]*discoveryv1.EndpointSlice, len(objs))
	for i, obj := range objs {
		out[i] = obj.(*discoveryv1.EndpointSlice)
	}
	return out
}

// Secret finds a followed Secret also where the namespace filter hides it: only
// a flag of the operator leads there, since an Ingress that is hidden itself
// refers to nothing.
func (s *store) Secret(r model.Ref) *corev1.Secret {
	if obj := lookup[corev1.Secret](s, string(model.Secret), r.Namespace, r.Name); obj != nil {
		return obj
	}
	obj, _ := s.followed.get(model.Ref{Kind: model.Secret, Namespace: r.Namespace, Name: r.Name}).(*corev1.Secret)
	return obj
}

func (s *store) ConfigMap(r model.Ref) *corev1.ConfigMap {
	obj, _ := s.followed.get(model.Ref{Kind: model.ConfigMap, Namespace: r.Namespace, Name: r.Name}).(*corev1.ConfigMap)
	return obj
}

func (s *store) Class(name string) *networkingv1.IngressClass {
	return lookup[networkingv1.IngressClass](s, string(model.Class), "", name)
}

func (s *store) Namespace(name string) *corev1.Namespace {
	return lookup[corev1.Namespace](s, string(model.Namespace), "", name)
}
