package watcher

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strip is the transform of every informer. It removes what no translation
// reads, which saves memory and, more important, makes changes of it invisible:
// see unchanged. It runs before anybody else sees the object and may run twice.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *networkingv1.Ingress:
		o.ObjectMeta = identity(&o.ObjectMeta)
	case *networkingv1.IngressClass:
		o.ObjectMeta = identity(&o.ObjectMeta)
	case *corev1.Service:
		o.ObjectMeta = identity(&o.ObjectMeta)
		o.Status = corev1.ServiceStatus{}
	case *corev1.Secret:
		o.ObjectMeta = identity(&o.ObjectMeta)
		o.Annotations = nil
	case *corev1.ConfigMap:
		o.ObjectMeta = identity(&o.ObjectMeta)
		o.Annotations = nil
	case *corev1.Namespace:
		labels := o.Labels
		o.ObjectMeta = identity(&o.ObjectMeta)
		o.Annotations, o.Labels = nil, labels
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *discoveryv1.EndpointSlice:
		stripSlice(o)
	}
	return obj, nil
}

// identity returns what is kept of an object's metadata: what names it, what
// decides conflicts (age), and its annotations. kubectl's copy of the object is
// dropped; so are labels, owners and managedFields. Status is written as a
// patch, so nothing stripped here is ever sent back.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	return metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
		Annotations:       m.Annotations,
	}
}

// stripSlice keeps addresses, ports and conditions, packed: a slice holds up to
// a thousand endpoints, and clusters hold many slices. Only the first address
// of an endpoint has a meaning.
func stripSlice(s *discoveryv1.EndpointSlice) {
	s.ObjectMeta = metav1.ObjectMeta{
		Name:            s.Name,
		Namespace:       s.Namespace,
		ResourceVersion: s.ResourceVersion,
		Labels:          map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName]},
	}
	packed := make([]discoveryv1.Endpoint, len(s.Endpoints))
	addresses := make([]string, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		packed[i].Conditions = discoveryv1.EndpointConditions{
			Ready:       shared(e.Conditions.Ready),
			Serving:     shared(e.Conditions.Serving),
			Terminating: shared(e.Conditions.Terminating),
		}
		if len(e.Addresses) > 0 {
			addresses[i] = e.Addresses[0]
			packed[i].Addresses = addresses[i : i+1 : i+1]
		}
	}
	s.Endpoints = packed
}

// shared returns a pointer to one of two immutable booleans.
func shared(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &yes
	}
	return &no
}

// yes and no are never written to.
var yes, no = true, false

// unchanged reports whether a translation would see no difference between two
// stripped versions of an object: after a relist, a change of labels, or a
// write of an Ingress's status (which is Fairway's own).
func unchanged(before, after any) bool {
	switch a := after.(type) {
	case *networkingv1.Ingress:
		b := before.(*networkingv1.Ingress)
		return sameIdentity(&b.ObjectMeta, &a.ObjectMeta) && equality.Semantic.DeepEqual(&b.Spec, &a.Spec)
	case *networkingv1.IngressClass:
		b := before.(*networkingv1.IngressClass)
		return sameIdentity(&b.ObjectMeta, &a.ObjectMeta) && equality.Semantic.DeepEqual(&b.Spec, &a.Spec)
	case *corev1.Service:
		b := before.(*corev1.Service)
		return sameIdentity(&b.ObjectMeta, &a.ObjectMeta) && equality.Semantic.DeepEqual(&b.Spec, &a.Spec)
	case *corev1.Secret:
		b := before.(*corev1.Secret)
		return b.Type == a.Type && equality.Semantic.DeepEqual(b.Data, a.Data)
	case *corev1.ConfigMap:
		b := before.(*corev1.ConfigMap)
		return equality.Semantic.DeepEqual(b.Data, a.Data) && equality.Semantic.DeepEqual(b.BinaryData, a.BinaryData)
	case *corev1.Namespace:
		b := before.(*corev1.Namespace)
		return equality.Semantic.DeepEqual(b.Labels, a.Labels)
	case *discoveryv1.EndpointSlice:
		b := before.(*discoveryv1.EndpointSlice)
		return b.AddressType == a.AddressType && equality.Semantic.DeepEqual(b.Labels, a.Labels) &&
			equality.Semantic.DeepEqual(b.Ports, a.Ports) && slices.EqualFunc(b.Endpoints, a.Endpoints, sameEndpoint)
	}
	panic(fmt.Sprintf("watcher: no comparison for %T", after))
}

// sameIdentity compares what identity keeps, without the version.
func sameIdentity(a, b *metav1.ObjectMeta) bool {
	return a.UID == b.UID && a.CreationTimestamp.Equal(&b.CreationTimestamp) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// sameEndpoint compares stripped endpoints. Their conditions are shared, so the
// pointers tell; reflection would take longer than a translation.
func sameEndpoint(a, b discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && a.Conditions == b.Conditions
}
