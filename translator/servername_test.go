package translator

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"fairway/envoy"
	"fairway/translator/model"
)

// The oldest Ingress decides about a server name, also when nothing changes but
// the ages, and the next one takes over when it goes or its Secret breaks.
func TestOldestIngressGivesTheCertificate(t *testing.T) {
	w, tr := newWorld(), New(testConfig)
	for i, ns := range []string{"a", "b"} {
		ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", CreationTimestamp: metav1.Time{Time: time.Unix(int64(i), 0)}}}
		ing.Spec.Rules = []networkingv1.IngressRule{{Host: "a.test"}}
		ing.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"a.test"}, SecretName: "t"}}
		w.put(ing)
		pair := newPair("a.test")
		s := tlsSecret(string(pair["tls.crt"]), string(pair["tls.key"]))
		s.Namespace = ns
		w.put(s)
	}
	a, b := refOf(model.Ingress, "a", "web"), refOf(model.Ingress, "b", "web")
	secret := refOf(model.Secret, "b", "t")
	age := func(r model.Ref, seconds int64) func() model.Ref {
		return func() model.Ref {
			ing := w.ingresses[r].DeepCopy()
			ing.CreationTimestamp = metav1.Time{Time: time.Unix(seconds, 0)}
			w.ingresses[r] = ing
			return r
		}
	}
	good, broken := w.secrets[secret], tlsSecret("", "")
	set := func(to string) func() model.Ref {
		return func() model.Ref {
			w.secrets[secret] = good
			if to == "broken" {
				w.secrets[secret] = broken
			}
			return secret
		}
	}
	tr.Apply(w, allDirty(w))
	for _, step := range []struct {
		change func() model.Ref
		want   string
	}{
		{age(a, 0), "tls/a/t"},
		{age(a, 5), "tls/b/t"},
		{set("broken"), "tls/a/t"},
		{set("good"), "tls/b/t"},
		{age(b, 5), "tls/a/t"},
		{func() model.Ref { delete(w.ingresses, a); return a }, "tls/b/t"},
	} {
		changed := step.change()
		tr.Apply(w, dirty(changed))
		l := decode(t, tr.published[envoy.Name{Type: envoy.Listener, Name: envoy.HTTPSName}]).(*listenerv3.Listener)
		names := serverNames(l.GetFilterChainMatcher())
		if len(names) != 1 || names[0] != [2]string{"a.test", step.want} {
			t.Errorf("after %v: got %v, want %s", changed, names, step.want)
		}
		for _, problem := range invalid(tr.published) {
			t.Error(problem)
		}
	}
}
