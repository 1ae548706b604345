package translator

import (
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"fairway/translator/model"
)

// annotationPrefix is that of ingress-nginx, whose annotations users bring.
const annotationPrefix = "nginx.ingress.kubernetes.io/"

// protections are the annotations that keep requests out. An Ingress that has
// one which Fairway does not honour must not be open: it answers 503.
var protections = map[string]bool{
	"auth-type": true, "auth-url": true, "auth-tls-secret": true,
	"whitelist-source-range": true, "allowlist-source-range": true, "denylist-source-range": true,
	"limit-rps": true, "limit-rpm": true, "limit-connections": true,
}

// annotations reports every annotation that has no effect, and returns whether
// one of them was to protect the Ingress.
func (b *fragmentBuilder) annotations(ing *networkingv1.Ingress) (unprotected bool) {
	for _, key := range slices.Sorted(maps.Keys(ing.Annotations)) {
		name, ours := strings.CutPrefix(key, annotationPrefix)
		switch field := "metadata.annotations[" + key + "]"; {
		case !ours:
		case protections[name]:
			unprotected = true
			b.report("ProtectionNotSupported", model.Error, field, "this protection is not supported, so the paths of this Ingress answer 503 instead of being open: remove it if they may be open")
		default:
			b.report("AnnotationNotSupported", model.Warning, field, "this annotation is not supported and has no effect")
		}
	}
	return unprotected
}

// close makes everything that the Ingress serves answer 503.
func (b *fragmentBuilder) close() {
	closed := target{status: 503}
	for _, c := range b.claims {
		for i := range c.routes {
			c.routes[i].target = &closed
		}
		if c.fallback != nil {
			c.fallback = &closed
		}
	}
	clear(b.targets)
}
