package watcher

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/informers/internalinterfaces"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"fairway/translator/model"
)

// kind is one row of the table: how one kind of object is watched.
type kind struct {
	name     string // in logs and metrics
	ref      model.Kind
	lane     Lane
	cluster  bool // objects have no namespace
	optional bool // watched only when a NamespaceSelector is given
	exempt   bool // not subject to the NamespaceSelector
	informer newInformer
	selector func(Options, *metav1.ListOptions)
	indexers cache.Indexers
	key      func(metav1.Object) model.Ref // what becomes dirty; nil: the object itself
}

type newInformer func(kubernetes.Interface, string, time.Duration, cache.Indexers, internalinterfaces.TweakListOptionsFunc) cache.SharedIndexInformer

// sliceKind is the name of the EndpointSlice row, which has no model.Kind.
const sliceKind = "EndpointSlice"

// byService indexes EndpointSlices by the "namespace/name" of their Service.
const byService = "service"

// kinds is the table of standing informers. A new kind is a new row here, and a
// case in strip and unchanged. ConfigMaps and Secrets of other types than TLS
// are watched one by one: see follow.go.
var kinds = []kind{
	{
		name: string(model.Ingress), ref: model.Ingress,
		informer: networkinginformers.NewFilteredIngressInformer,
	},
	{
		name: string(model.Class), ref: model.Class, cluster: true,
		informer: unscoped(networkinginformers.NewFilteredIngressClassInformer),
	},
	{
		name: string(model.Service), ref: model.Service,
		informer: coreinformers.NewFilteredServiceInformer,
		selector: func(o Options, l *metav1.ListOptions) { l.LabelSelector = o.ServiceSelector },
	},
	{
		name: sliceKind, ref: model.Service, lane: Endpoints,
		informer: discoveryinformers.NewFilteredEndpointSliceInformer,
		selector: func(o Options, l *metav1.ListOptions) {
			l.LabelSelector = and(discoveryv1.LabelServiceName, o.ServiceSelector)
		},
		indexers: cache.Indexers{byService: indexByService},
		key:      serviceOf,
	},
	{
		name: string(model.Secret), ref: model.Secret,
		informer: coreinformers.NewFilteredSecretInformer,
		selector: func(_ Options, l *metav1.ListOptions) { l.FieldSelector = "type=" + string(corev1.SecretTypeTLS) },
	},
	{
		name: string(model.Namespace), ref: model.Namespace, cluster: true, optional: true,
		informer: unscoped(coreinformers.NewFilteredNamespaceInformer),
	},
}

// unscoped gives the constructor of a cluster-scoped kind's informer the same
// form as the others.
func unscoped(f func(kubernetes.Interface, time.Duration, cache.Indexers, internalinterfaces.TweakListOptionsFunc) cache.SharedIndexInformer) newInformer {
	return func(c kubernetes.Interface, _ string, resync time.Duration, i cache.Indexers, t internalinterfaces.TweakListOptionsFunc) cache.SharedIndexInformer {
		return f(c, resync, i, t)
	}
}

// and joins two label selectors; the second may be empty.
func and(a, b string) string {
	if b == "" {
		return a
	}
	return a + "," + b
}

// serviceOf returns the Service that an EndpointSlice belongs to.
func serviceOf(slice metav1.Object) model.Ref {
	return model.Ref{Kind: model.Service, Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
}

func indexByService(obj any) ([]string, error) {
	ref := serviceOf(obj.(*discoveryv1.EndpointSlice))
	return []string{ref.Namespace + "/" + ref.Name}, nil
}

// refOf returns what becomes dirty when obj changes.
func (k *kind) refOf(obj metav1.Object) model.Ref {
	if k.key != nil {
		return k.key(obj)
	}
	return model.Ref{Kind: k.ref, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// scopes returns the namespaces that need an informer of their own.
func (k *kind) scopes(o Options) []string {
	if k.cluster || len(o.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return o.Namespaces
}

// build returns one informer of the kind.
func (k *kind) build(o Options, namespace string) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	maps.Copy(indexers, k.indexers)
	return k.informer(o.Client, namespace, 0, indexers, func(l *metav1.ListOptions) {
		if k.selector != nil {
			k.selector(o, l)
		}
	})
}
