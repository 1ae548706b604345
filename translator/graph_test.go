package translator

import (
	"maps"
	"slices"
	"testing"

	"fairway/translator/model"
)

func TestGraph(t *testing.T) {
	g := newGraph()
	a, b := refOf(model.Ingress, "n", "a"), refOf(model.Ingress, "n", "b")
	s1, s2 := refOf(model.Service, "n", "s1"), refOf(model.Service, "n", "s2")
	users := func(o model.Ref) []model.Ref { return slices.SortedFunc(maps.Keys(g.users[o]), model.Ref.Compare) }
	for _, step := range []struct {
		set    model.Ref
		to     []model.Ref
		s1, s2 []model.Ref
	}{
		{a, []model.Ref{s1}, []model.Ref{a}, nil},
		{b, []model.Ref{s1, s2}, []model.Ref{a, b}, []model.Ref{b}},
		{a, []model.Ref{s2}, []model.Ref{b}, []model.Ref{a, b}},
		{b, nil, nil, []model.Ref{a}},
		{b, nil, nil, []model.Ref{a}},
		{a, nil, nil, nil},
	} {
		g.set(step.set, step.to)
		if !slices.Equal(users(s1), step.s1) || !slices.Equal(users(s2), step.s2) {
			t.Fatalf("%v → %v: got users %v and %v", step.set, step.to, users(s1), users(s2))
		}
	}
	if len(g.users)+len(g.uses) != 0 {
		t.Errorf("something is kept: %v", g)
	}
}
