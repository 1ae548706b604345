package translator

import (
	"reflect"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/translator/model"
)

func TestClass(t *testing.T) {
	field := func(name string) *string { return &name }
	w := newWorld()
	for name, controller := range map[string]string{"ours": testConfig.ControllerClass, "theirs": "k8s.io/ingress-nginx"} {
		w.put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controller}})
	}
	for _, c := range []struct {
		name         string
		field        *string
		annotation   *string
		with, strict bool // served with and without --watch-ingress-without-class
		uses         string
	}{
		{name: "none", with: true},
		{name: "field", field: field("ours"), with: true, strict: true, uses: "ours"},
		{name: "foreign field", field: field("theirs"), uses: "theirs"},
		{name: "missing class", field: field("gone"), uses: "gone"},
		{name: "empty field", field: field("")},
		{name: "annotation", annotation: field("fairway"), with: true, strict: true},
		{name: "foreign annotation", annotation: field("nginx")},
		{name: "the annotation names no IngressClass", annotation: field("ours")},
		{name: "the field wins", field: field("ours"), annotation: field("nginx"), with: true, strict: true, uses: "ours"},
		{name: "the foreign field wins", field: field("theirs"), annotation: field("fairway"), uses: "theirs"},
	} {
		for _, without := range []bool{true, false} {
			config := testConfig
			config.WithoutClass = without
			ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: networkingv1.IngressSpec{IngressClassName: c.field}}
			if c.annotation != nil {
				ing.Annotations = map[string]string{classAnnotation: *c.annotation}
			}
			w.put(ing)
			f := buildFragment(ref(model.Ingress, ing), &config, w, nil)
			want := c.strict
			if without {
				want = c.with
			}
			if f.served != want {
				t.Errorf("%s, without class %v: served %v", c.name, without, f.served)
			}
			if c.uses != "" && (len(f.uses) != 1 || f.uses[0] != refOf(model.Class, "", c.uses)) {
				t.Errorf("%s: it does not come again when its class changes: %v", c.name, f.uses)
			}
		}
	}
}

// An Ingress follows its class: served when it comes, gone when it goes.
func TestClassComesAndGoes(t *testing.T) {
	w, tr := newWorld(), New(testConfig)
	w.add(t, []byte(oneIngress))
	ingress, class := refOf(model.Ingress, "shop", "web"), refOf(model.Class, "", "ours")
	w.ingresses[ingress].Spec.IngressClassName = &class.Name
	if r := tr.Apply(w, allDirty(w)); len(r.Verdicts) != 1 || r.Verdicts[0].Served {
		t.Fatalf("got %v", r.Verdicts)
	}
	w.put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: class.Name}, Spec: networkingv1.IngressClassSpec{Controller: testConfig.ControllerClass}})
	if r := tr.Apply(w, dirty(class)); len(r.Verdicts) != 1 || !r.Verdicts[0].Served || len(r.Delta.Upserts) != 4 {
		t.Fatalf("got %v and %d upserts", r.Verdicts, len(r.Delta.Upserts))
	}
	delete(w.classes, class.Name)
	if r := tr.Apply(w, dirty(class)); len(r.Verdicts) != 1 || r.Verdicts[0].Served || len(r.Delta.Removes) != 2 {
		t.Fatalf("got %v and removes %v", r.Verdicts, r.Delta.Removes)
	}
	delete(w.ingresses, ingress)
	if r := tr.Apply(w, dirty(ingress)); len(r.Verdicts) != 0 || !r.Delta.Empty() {
		t.Fatalf("nothing was said of it any more, got %v", r.Verdicts)
	}
}

// An Ingress that was deleted and created anew between two passes is another
// one: its status is empty, and Events of the old one do not show on it.
func TestIngressIsCreatedAnew(t *testing.T) {
	w, tr := newWorld(), New(testConfig)
	w.add(t, []byte(oneIngress))
	ingress := refOf(model.Ingress, "shop", "web")
	first := tr.Apply(w, allDirty(w)).Verdicts
	if len(first) != 1 || !first[0].Served {
		t.Fatalf("got %v", first)
	}
	anew := w.ingresses[ingress].DeepCopy()
	anew.UID = "another"
	w.put(anew)
	want := append([]model.Verdict{{Ingress: ingress}}, first...)
	if r := tr.Apply(w, dirty(ingress)); !reflect.DeepEqual(r.Verdicts, want) || !r.Delta.Empty() {
		t.Fatalf("got %v, want %v and no change for Envoy", r.Verdicts, want)
	}
	if r := tr.Apply(w, dirty(ingress)); len(r.Verdicts) != 0 {
		t.Fatalf("got %v again", r.Verdicts)
	}
}
