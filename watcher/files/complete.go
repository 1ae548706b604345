package files

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// complete fills in what the API server would have filled in, as far as a
// translation reads it.
func complete(obj object) {
	switch o := obj.(type) {
	case *networkingv1.IngressClass, *corev1.Namespace:
		obj.SetNamespace("")
		return
	case *corev1.Service:
		completeService(o)
	case *discoveryv1.EndpointSlice:
		completeSlice(o)
	case *corev1.Secret:
		completeSecret(o)
	}
	obj.SetNamespace(cmp.Or(obj.GetNamespace(), metav1.NamespaceDefault))
}

func completeService(s *corev1.Service) {
	s.Spec.Type = cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort.IntVal == 0 && p.TargetPort.StrVal == "" {
			p.TargetPort.IntVal = p.Port
		}
	}
}

func completeSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
	}
}

func completeSecret(s *corev1.Secret) {
	s.Type = cmp.Or(s.Type, corev1.SecretTypeOpaque)
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// legacyClass is the annotation that named the class before the field did.
const legacyClass = "kubernetes.io/ingress.class"

// addClass adds the IngressClass that the operator named, if no class of this
// controller is among the objects, and gives Ingresses without any class the
// default one, as admission does.
func (o Options) addClass(w *world) {
	name := defaultClass(w)
	if !o.ours(w) && o.IngressClass != "" && w.classes[o.IngressClass] == nil {
		w.classes[o.IngressClass] = &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: o.IngressClass},
			Spec:       networkingv1.IngressClassSpec{Controller: o.ControllerClass},
		}
		name = cmp.Or(name, o.IngressClass)
	}
	if name == "" {
		return
	}
	for key, ing := range w.ingresses {
		if _, legacy := ing.Annotations[legacyClass]; legacy || ing.Spec.IngressClassName != nil {
			continue
		}
		ing = ing.DeepCopy() // the file may be kept for the next scan
		ing.Spec.IngressClassName = &name
		w.ingresses[key] = ing
	}
}

// ours reports whether some class belongs to this controller.
func (o Options) ours(w *world) bool {
	for _, c := range w.classes {
		if c.Spec.Controller == o.ControllerClass {
			return true
		}
	}
	return false
}

// defaultClass returns the name of the class that is marked as the default; of
// several the newest, and of equally old ones the first by name.
func defaultClass(w *world) string {
	var marked []*networkingv1.IngressClass
	for _, c := range w.classes {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			marked = append(marked, c)
		}
	}
	if len(marked) == 0 {
		return ""
	}
	return slices.MinFunc(marked, func(a, b *networkingv1.IngressClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}
