package watcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// full is metadata with everything that an API server may send.
func full() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "n", Namespace: "d", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.Unix(1, 0),
		Labels:          map[string]string{"l": "m", discoveryv1.LabelServiceName: "s"},
		Annotations:     map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}"},
		OwnerReferences: []metav1.OwnerReference{{Name: "o"}},
		Finalizers:      []string{"f"},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
}

func kept(annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "n", Namespace: "d", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1, 0), Annotations: annotations}
}

func TestStrip(t *testing.T) {
	ab := map[string]string{"a": "b"}
	zone, node, yes1 := "z", "n", true
	shown := networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}}}
	for _, tt := range []struct{ in, want runtime.Object }{
		{&networkingv1.Ingress{ObjectMeta: full(), Status: shown}, &networkingv1.Ingress{ObjectMeta: kept(ab), Status: shown}},
		{&networkingv1.IngressClass{ObjectMeta: full()}, &networkingv1.IngressClass{ObjectMeta: kept(ab)}},
		{&corev1.Service{ObjectMeta: full(), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}}},
			&corev1.Service{ObjectMeta: kept(ab), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}},
		{&corev1.Secret{ObjectMeta: full(), Data: map[string][]byte{"k": nil}}, &corev1.Secret{ObjectMeta: kept(nil), Data: map[string][]byte{"k": nil}}},
		{&corev1.ConfigMap{ObjectMeta: full(), Data: ab}, &corev1.ConfigMap{ObjectMeta: kept(nil), Data: ab}},
		{&corev1.Namespace{ObjectMeta: full(), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"f"}}}, &corev1.Namespace{ObjectMeta: func() metav1.ObjectMeta {
			m := kept(nil)
			m.Labels = full().Labels
			return m
		}()}},
		{&discoveryv1.EndpointSlice{ObjectMeta: full(), Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1", "10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes1}, Zone: &zone, NodeName: &node, TargetRef: &corev1.ObjectReference{Name: "p"}, Hints: &discoveryv1.EndpointHints{}},
			{}}},
			&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "d", ResourceVersion: "7", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
				Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}, {}}}},
	} {
		for range 2 { // stripping twice is the same as once
			got, err := strip(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%T (-want +got):\n%s", tt.in, d)
			}
		}
	}
	gone := cache.DeletedFinalStateUnknown{Key: "k"}
	if got, err := strip(gone); err != nil || got != any(gone) {
		t.Errorf("got %v, %v", got, err)
	}
}

// Each change makes a difference to a translation, or none.
func TestUnchanged(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   runtime.Object
		edit func(runtime.Object)
		want bool
	}{
		{"ingress status", ingress("d", "n"), func(o runtime.Object) {
			o.(*networkingv1.Ingress).Status.LoadBalancer.Ingress = make([]networkingv1.IngressLoadBalancerIngress, 1)
		}, true},
		{"ingress version", ingress("d", "n"), func(o runtime.Object) { o.(*networkingv1.Ingress).ResourceVersion = "2" }, true},
		{"ingress annotation", ingress("d", "n"), func(o runtime.Object) { o.(*networkingv1.Ingress).Annotations = map[string]string{"a": "b"} }, false},
		{"ingress spec", ingress("d", "n"), func(o runtime.Object) { o.(*networkingv1.Ingress).Spec.Rules = make([]networkingv1.IngressRule, 1) }, false},
		{"ingress created again", ingress("d", "n"), func(o runtime.Object) { o.(*networkingv1.Ingress).UID = "2" }, false},
		{"ingress age", ingress("d", "n"), func(o runtime.Object) { o.(*networkingv1.Ingress).CreationTimestamp = metav1.Unix(9, 0) }, false},
		{"class spec", &networkingv1.IngressClass{}, func(o runtime.Object) { o.(*networkingv1.IngressClass).Spec.Controller = "c" }, false},
		{"class annotation", &networkingv1.IngressClass{}, func(o runtime.Object) { o.(*networkingv1.IngressClass).Annotations = map[string]string{"a": "b"} }, false},
		{"service version", service("d", "n"), func(o runtime.Object) { o.(*corev1.Service).ResourceVersion = "2" }, true},
		{"service ports", service("d", "n"), func(o runtime.Object) { o.(*corev1.Service).Spec.Ports = make([]corev1.ServicePort, 1) }, false},
		{"service annotation", service("d", "n"), func(o runtime.Object) { o.(*corev1.Service).Annotations = map[string]string{"a": "b"} }, false},
		{"secret version", secret("d", "n", "t"), func(o runtime.Object) { o.(*corev1.Secret).ResourceVersion = "2" }, true},
		{"secret data", secret("d", "n", "t"), func(o runtime.Object) { o.(*corev1.Secret).Data = nil }, false},
		{"secret type", secret("d", "n", "t"), func(o runtime.Object) { o.(*corev1.Secret).Type = "u" }, false},
		{"config map version", &corev1.ConfigMap{}, func(o runtime.Object) { o.(*corev1.ConfigMap).ResourceVersion = "2" }, true},
		{"config map data", &corev1.ConfigMap{}, func(o runtime.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"a": "b"} }, false},
		{"namespace labels", namespace("n", nil), func(o runtime.Object) { o.(*corev1.Namespace).Labels = map[string]string{"a": "b"} }, false},
		{"slice version", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).ResourceVersion = "2" }, true},
		{"slice address", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).Endpoints[0].Addresses = []string{"10.0.0.2"} }, false},
		{"slice condition", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).Endpoints[0].Conditions.Ready = &no }, false},
		{"slice endpoint", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).Endpoints = nil }, false},
		{"slice ports", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).Ports = make([]discoveryv1.EndpointPort, 1) }, false},
		{"slice service", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).Labels[discoveryv1.LabelServiceName] = "u" }, false},
		{"slice address type", slice("d", "n", "s", "10.0.0.1"), func(o runtime.Object) { o.(*discoveryv1.EndpointSlice).AddressType = "IPv6" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			after := tt.in.DeepCopyObject()
			if !unchanged(tt.in, after) {
				t.Error("a copy differs")
			}
			tt.edit(after)
			if got := unchanged(tt.in, after); got != tt.want {
				t.Errorf("unchanged: got %v, want %v", got, tt.want)
			}
		})
	}
}

func BenchmarkUnchangedSlice(b *testing.B) {
	addresses := make([]string, 100)
	for i := range addresses {
		addresses[i] = "10.0.0.1"
	}
	before, _ := strip(slice("d", "n", "s", addresses...))
	after, _ := strip(slice("d", "n", "s", addresses...))
	b.ReportAllocs()
	for b.Loop() {
		if !unchanged(before, after) {
			b.Fatal("changed")
		}
	}
}
