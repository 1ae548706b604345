package files

import (
	"fmt"
	"iter"
	"maps"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"fairway/translator/model"
)

// key is a namespaced name; the namespace is empty for cluster-scoped kinds.
type key struct{ namespace, name string }

// world is all objects of one scan. It is never written to once it is published.
type world struct {
	ingresses  map[key]*networkingv1.Ingress
	services   map[key]*corev1.Service
	slices     map[key]*discoveryv1.EndpointSlice
	byService  map[key][]*discoveryv1.EndpointSlice
	secrets    map[key]*corev1.Secret
	configMaps map[key]*corev1.ConfigMap
	classes    map[string]*networkingv1.IngressClass
	namespaces map[string]*corev1.Namespace
}

func newWorld() *world {
	return &world{
		ingresses:  map[key]*networkingv1.Ingress{},
		services:   map[key]*corev1.Service{},
		slices:     map[key]*discoveryv1.EndpointSlice{},
		byService:  map[key][]*discoveryv1.EndpointSlice{},
		secrets:    map[key]*corev1.Secret{},
		configMaps: map[key]*corev1.ConfigMap{},
		classes:    map[string]*networkingv1.IngressClass{},
		namespaces: map[string]*corev1.Namespace{},
	}
}

// add adds an object and reports whether there was none of its kind and name.
func (w *world) add(obj object) bool {
	k := key{obj.GetNamespace(), obj.GetName()}
	switch o := obj.(type) {
	case *networkingv1.Ingress:
		return insert(w.ingresses, k, o)
	case *corev1.Service:
		return insert(w.services, k, o)
	case *discoveryv1.EndpointSlice:
		if !insert(w.slices, k, o) {
			return false
		}
		if service := serviceOf(o); service.name != "" {
			w.byService[service] = append(w.byService[service], o)
		}
		return true
	case *corev1.Secret:
		return insert(w.secrets, k, o)
	case *corev1.ConfigMap:
		return insert(w.configMaps, k, o)
	case *networkingv1.IngressClass:
		return insert(w.classes, k.name, o)
	case *corev1.Namespace:
		return insert(w.namespaces, k.name, o)
	}
	panic(fmt.Sprintf("files: no place for %T", obj))
}

func insert[K comparable, V any](m map[K]V, k K, v V) bool {
	if _, taken := m[k]; taken {
		return false
	}
	m[k] = v
	return true
}

func serviceOf(s *discoveryv1.EndpointSlice) key {
	return key{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
}

// diff returns the keys of what differs between two worlds.
func diff(a, b *world) (config, endpoints []model.Ref) {
	config = refs(config, model.Ingress, changed(a.ingresses, b.ingresses))
	config = refs(config, model.Service, changed(a.services, b.services))
	config = refs(config, model.Secret, changed(a.secrets, b.secrets))
	config = refs(config, model.ConfigMap, changed(a.configMaps, b.configMaps))
	config = refs(config, model.Class, changed(byName(a.classes), byName(b.classes)))
	config = refs(config, model.Namespace, changed(byName(a.namespaces), byName(b.namespaces)))
	for _, k := range changed(a.slices, b.slices) {
		for _, slice := range []*discoveryv1.EndpointSlice{a.slices[k], b.slices[k]} {
			if slice != nil && serviceOf(slice).name != "" {
				endpoints = refs(endpoints, model.Service, []key{serviceOf(slice)})
			}
		}
	}
	return config, endpoints
}

// changed returns the keys that only one map has, or whose objects differ.
// Objects of files that did not change are the same pointers.
func changed[V comparable](a, b map[key]V) []key {
	var out []key
	for k, old := range a {
		if now, ok := b[k]; !ok || old != now && !equality.Semantic.DeepEqual(old, now) {
			out = append(out, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	return out
}

// refs appends the keys, as Refs of a kind.
func refs(to []model.Ref, kind model.Kind, keys []key) []model.Ref {
	for _, k := range keys {
		to = append(to, model.Ref{Kind: kind, Namespace: k.namespace, Name: k.name})
	}
	return to
}

func byName[V any](m map[string]V) map[key]V {
	out := make(map[key]V, len(m))
	for name, v := range m {
		out[key{name: name}] = v
	}
	return out
}

// source is the model.Source of the latest world.
type source struct{ now atomic.Pointer[world] }

func newSource(w *world) *source {
	s := &source{}
	s.now.Store(w)
	return s
}

func of(r model.Ref) key { return key{r.Namespace, r.Name} }

func (s *source) Ingress(r model.Ref) *networkingv1.Ingress { return s.now.Load().ingresses[of(r)] }

func (s *source) Ingresses() iter.Seq[*networkingv1.Ingress] {
	return maps.Values(s.now.Load().ingresses)
}

func (s *source) Service(r model.Ref) *corev1.Service { return s.now.Load().services[of(r)] }

func (s *source) Slices(service model.Ref) []*discoveryv1.EndpointSlice {
	return s.now.Load().byService[of(service)]
}

func (s *source) Secret(r model.Ref) *corev1.Secret { return s.now.Load().secrets[of(r)] }

func (s *source) ConfigMap(r model.Ref) *corev1.ConfigMap { return s.now.Load().configMaps[of(r)] }

func (s *source) Class(name string) *networkingv1.IngressClass { return s.now.Load().classes[name] }

func (s *source) Namespace(name string) *corev1.Namespace { return s.now.Load().namespaces[name] }
