// Package model is the Kubernetes side of Fairway's vocabulary: what a
// translation reads (Source), what starts it (Dirty) and what it says to the
// owners of the objects (Report, Verdict). It is a leaf: no Envoy, no client.
package model

import (
	"cmp"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Kind names a kind of object that Fairway watches.
type Kind string

// The kinds that Fairway watches. EndpointSlices have no Kind: they are always
// addressed through the Service that they belong to.
const (
	Ingress   Kind = "Ingress"
	Class     Kind = "IngressClass"
	Service   Kind = "Service"
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
	Namespace Kind = "Namespace"
)

// Ref identifies one object. Namespace is empty for cluster-scoped kinds.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String returns "Kind namespace/name", or "Kind name" for cluster-scoped kinds.
func (r Ref) String() string {
	if r.Namespace == "" {
		return string(r.Kind) + " " + r.Name
	}
	return string(r.Kind) + " " + r.Namespace + "/" + r.Name
}

// ParseRef reads what String writes.
func ParseRef(s string) (Ref, bool) {
	kind, rest, ok := strings.Cut(s, " ")
	if !ok || kind == "" || rest == "" {
		return Ref{}, false
	}
	namespace, name, namespaced := strings.Cut(rest, "/")
	if !namespaced {
		return Ref{Kind: Kind(kind), Name: rest}, true
	}
	return Ref{Kind: Kind(kind), Namespace: namespace, Name: name}, true
}

// Compare orders Refs by kind, namespace and name.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(r.Name, o.Name))
}

// Source gives the current objects. Lookups return nil for what does not exist
// or is not watched. All objects are immutable: nobody may write to them.
// The order of Ingresses, Services and Slices is unspecified.
type Source interface {
	Ingress(Ref) *networkingv1.Ingress
	Ingresses() iter.Seq[*networkingv1.Ingress]
	Service(Ref) *corev1.Service
	// Slices returns the EndpointSlices whose kubernetes.io/service-name label
	// names the Service, in its namespace.
	Slices(service Ref) []*discoveryv1.EndpointSlice
	Secret(Ref) *corev1.Secret
	ConfigMap(Ref) *corev1.ConfigMap
	Class(name string) *networkingv1.IngressClass
	Namespace(name string) *corev1.Namespace
}

// Dirty is a set of keys whose objects may have changed since the last
// translation, in two lanes: Endpoints holds Services whose EndpointSlices
// changed, Config everything else. Keys say nothing about how an object
// changed; the Source is asked for its present state.
type Dirty struct {
	Endpoints map[Ref]struct{}
	Config    map[Ref]struct{}
}

// Empty reports whether nothing is dirty.
func (d Dirty) Empty() bool { return len(d.Endpoints) == 0 && len(d.Config) == 0 }
