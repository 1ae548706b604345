package translator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"

	"fairway/translator/model"
)

// world is a Source in memory.
type world struct {
	ingresses map[model.Ref]*networkingv1.Ingress
	services  map[model.Ref]*corev1.Service
	secrets   map[model.Ref]*corev1.Secret
	classes   map[string]*networkingv1.IngressClass
	slices    map[string]*discoveryv1.EndpointSlice // by namespace/name
}

func newWorld() *world {
	return &world{
		ingresses: map[model.Ref]*networkingv1.Ingress{}, services: map[model.Ref]*corev1.Service{}, secrets: map[model.Ref]*corev1.Secret{},
		classes: map[string]*networkingv1.IngressClass{}, slices: map[string]*discoveryv1.EndpointSlice{},
	}
}

// clone copies the world; the objects are shared, since they are immutable.
func (w *world) clone() *world {
	return &world{
		ingresses: maps.Clone(w.ingresses), services: maps.Clone(w.services), secrets: maps.Clone(w.secrets),
		classes: maps.Clone(w.classes), slices: maps.Clone(w.slices),
	}
}

func (w *world) Ingress(r model.Ref) *networkingv1.Ingress    { return w.ingresses[r] }
func (w *world) Ingresses() iter.Seq[*networkingv1.Ingress]   { return maps.Values(w.ingresses) }
func (w *world) Service(r model.Ref) *corev1.Service          { return w.services[r] }
func (w *world) Secret(r model.Ref) *corev1.Secret            { return w.secrets[r] }
func (w *world) ConfigMap(model.Ref) *corev1.ConfigMap        { return nil }
func (w *world) Class(name string) *networkingv1.IngressClass { return w.classes[name] }
func (w *world) Namespace(string) *corev1.Namespace           { return nil }
func (w *world) Slices(service model.Ref) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range w.slices {
		if s.Namespace == service.Namespace && s.Labels[discoveryv1.LabelServiceName] == service.Name {
			out = append(out, s)
		}
	}
	return out
}

var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

func ref(kind model.Kind, o metav1.Object) model.Ref {
	return model.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// add stores the objects of a multi-document manifest; the namespace defaults
// to "default".
func (w *world) add(t testing.TB, manifest []byte) {
	t.Helper()
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		o, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		w.put(o)
	}
}

func (w *world) put(o runtime.Object) {
	m := o.(metav1.Object)
	if m.GetNamespace() == "" {
		m.SetNamespace("default")
	}
	switch o := o.(type) {
	case *networkingv1.Ingress:
		w.ingresses[ref(model.Ingress, o)] = o
	case *networkingv1.IngressClass:
		o.Namespace = ""
		w.classes[o.Name] = o
	case *corev1.Service:
		w.services[ref(model.Service, o)] = o
	case *corev1.Secret:
		w.secrets[ref(model.Secret, o)] = o
	case *discoveryv1.EndpointSlice:
		w.slices[o.Namespace+"/"+o.Name] = o
	default:
		panic(fmt.Sprintf("unexpected %T", o))
	}
}
