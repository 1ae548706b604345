package translator

import (
	networkingv1 "k8s.io/api/networking/v1"

	"fairway/translator/model"
)

// classAnnotation selected the controller before spec.ingressClassName existed.
const classAnnotation = "kubernetes.io/ingress.class"

// ours says whether an Ingress is for this controller: the field wins over the
// annotation, and the class it names must exist with our controller. A default
// IngressClass needs no rule here: admission writes it into the field.
func (b *fragmentBuilder) ours(ing *networkingv1.Ingress) bool {
	c := b.config
	if name := ing.Spec.IngressClassName; name != nil {
		b.refer(model.Ref{Kind: model.Class, Name: *name})
		class := b.src.Class(*name)
		if class == nil && *name == c.IngressClass {
			b.report("ClassNotFound", model.Error, "spec.ingressClassName",
				"IngressClass %q does not exist, so nobody serves this Ingress: create it with spec.controller %q", *name, c.ControllerClass)
		}
		return class != nil && class.Spec.Controller == c.ControllerClass
	}
	if class, ok := ing.Annotations[classAnnotation]; ok {
		return class == c.IngressClass
	}
	return c.WithoutClass
}
