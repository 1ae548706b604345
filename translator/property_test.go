package translator

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairway/translator/model"
)

// Whatever the objects, every resource satisfies its own constraints, names
// only what is published, and no table holds a domain twice.
func TestNoInvalidResource(t *testing.T) {
	certs := testCertificates()
	rapid.Check(t, func(r *rapid.T) {
		g := &generator{T: r, w: newWorld(), certs: certs, dirty: newDirty()}
		tr := New(g.config())
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			g.changes()
			g.apply(tr)
			for _, problem := range invalid(tr.published) {
				r.Error(problem)
			}
		}
	})
}

// The same objects give the same bytes in whatever order their events come, and
// no memory of what is gone.
func TestOrderDoesNotMatter(t *testing.T) {
	certs := testCertificates()
	rapid.Check(t, func(r *rapid.T) {
		g := &generator{T: r, w: newWorld(), certs: certs, dirty: newDirty()}
		config := g.config()
		for range rapid.IntRange(1, 20).Draw(r, "size") {
			g.changes()
		}
		var want []string
		for range 3 {
			w, tr := newWorld(), New(config)
			for _, apply := range rapid.Permutation(g.w.events()).Draw(r, "order") {
				tr.Apply(w, apply(w))
			}
			got := versions(tr.published)
			if want == nil {
				want = got
			}
			if d := cmp.Diff(want, got); d != "" {
				r.Fatalf("another order gives something else:\n%s", d)
			}
		}
	})
}

// events returns what brings a world from nothing to its state, an object at a
// time, in an order that never varies.
func (w *world) events() []func(*world) model.Dirty {
	var out []func(*world) model.Dirty
	add := func(ref model.Ref, put func(*world)) {
		out = append(out, func(to *world) model.Dirty { put(to); return dirty(ref) })
	}
	for _, ref := range sortedKeys(w.ingresses) {
		add(ref, func(to *world) { to.ingresses[ref] = w.ingresses[ref] })
	}
	for _, ref := range sortedKeys(w.services) {
		add(ref, func(to *world) { to.services[ref] = w.services[ref] })
	}
	for _, ref := range sortedKeys(w.secrets) {
		add(ref, func(to *world) { to.secrets[ref] = w.secrets[ref] })
	}
	for name, c := range w.classes {
		add(refOf(model.Class, "", name), func(to *world) { to.classes[name] = c })
	}
	for name, s := range w.slices {
		service := refOf(model.Service, s.Namespace, s.Labels["kubernetes.io/service-name"])
		out = append(out, func(to *world) model.Dirty {
			to.slices[name] = s
			return model.Dirty{Endpoints: map[model.Ref]struct{}{service: {}}}
		})
	}
	return out
}

func sortedKeys[V any](m map[model.Ref]V) []model.Ref {
	var out []model.Ref
	for ref := range m {
		out = append(out, ref)
	}
	slices.SortFunc(out, model.Ref.Compare)
	return out
}

// A thousand builds of one world, each reading the objects in another order,
// give one version of each resource; a resync sends nothing.
func TestRebuildsGiveOneVersion(t *testing.T) {
	w := growthWorld(50)
	tr := New(testConfig)
	tr.Apply(w, allDirty(w))
	want := versions(tr.published)
	for range 1000 {
		if d := cmp.Diff(want, versions(byName(Full(testConfig, w).Delta.Upserts))); d != "" {
			t.Fatal(d)
		}
	}
	all := allDirty(w)
	all.Endpoints = map[model.Ref]struct{}{}
	for ref := range w.services {
		all.Config[ref], all.Endpoints[ref] = struct{}{}, struct{}{}
	}
	if r := tr.Apply(w, all); !r.Delta.Empty() || len(r.Verdicts) != 0 || r.References != nil {
		t.Errorf("a resync sends %d resources, %d verdicts", len(r.Delta.Upserts), len(r.Verdicts))
	}
}
