package translator

import (
	"maps"
	"slices"

	"fairway/translator/model"
)

// graph knows which Ingresses depend on an object: the reverse of what each
// Ingress refers to.
type graph struct {
	users map[model.Ref]map[model.Ref]struct{} // object → Ingresses
	uses  map[model.Ref][]model.Ref            // Ingress → objects
}

func newGraph() graph {
	return graph{users: map[model.Ref]map[model.Ref]struct{}{}, uses: map[model.Ref][]model.Ref{}}
}

// set replaces all that an Ingress refers to; nil forgets the Ingress.
func (g *graph) set(ingress model.Ref, objects []model.Ref) {
	for _, o := range g.uses[ingress] {
		delete(g.users[o], ingress)
		if len(g.users[o]) == 0 {
			delete(g.users, o)
		}
	}
	if len(objects) == 0 {
		delete(g.uses, ingress)
		return
	}
	g.uses[ingress] = objects
	for _, o := range objects {
		if g.users[o] == nil {
			g.users[o] = map[model.Ref]struct{}{}
		}
		g.users[o][ingress] = struct{}{}
	}
}

// Users returns the Ingresses that depend on an object, sorted.
func (t *Translator) Users(object model.Ref) []model.Ref {
	return slices.SortedFunc(maps.Keys(t.references.users[object]), model.Ref.Compare)
}
