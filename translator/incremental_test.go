package translator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairway/envoy"
	"fairway/translator/model"
)

// Any sequence of changes, translated step by step with any grouping of the
// dirty keys, ends in the bytes, versions and verdicts of a full translation,
// also when the Source changes while it is read.
func TestApplyEqualsFull(t *testing.T) {
	certs := testCertificates()
	rapid.Check(t, func(r *rapid.T) {
		g := &generator{T: r, w: newWorld(), certs: certs, dirty: newDirty()}
		config := g.config()
		tr, c := New(config), newClient()
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			g.changes()
			if rapid.IntRange(0, 3).Draw(r, "live") == 0 {
				c.receive(r, g.applyLive(tr))
				continue
			}
			c.receive(r, g.apply(tr))
			compareWithFull(r, config, g.w, tr, c)
		}
		c.receive(r, g.apply(tr))
		compareWithFull(r, config, g.w, tr, c)
	})
}

func newDirty() model.Dirty {
	return model.Dirty{Endpoints: map[model.Ref]struct{}{}, Config: map[model.Ref]struct{}{}}
}

// client holds what a receiver of all results knows.
type client struct {
	resources  map[envoy.Name]*envoy.Resource
	verdicts   map[model.Ref]model.Verdict
	references []model.Ref
}

func newClient() *client {
	return &client{resources: map[envoy.Name]*envoy.Resource{}, verdicts: map[model.Ref]model.Verdict{}}
}

// receive applies a result, and checks that all of it changes something.
func (c *client) receive(t *rapid.T, r Result) {
	for _, u := range r.Delta.Upserts {
		if old := c.resources[u.Key()]; old != nil && old.Version == u.Version {
			t.Fatalf("%v is sent again unchanged", u.Key())
		}
		c.resources[u.Key()] = u
	}
	for _, n := range r.Delta.Removes {
		if c.resources[n] == nil {
			t.Fatalf("%v is removed but was never there", n)
		}
		delete(c.resources, n)
	}
	for _, v := range r.Verdicts {
		c.verdicts[v.Ingress] = v
	}
	if r.References != nil {
		c.references = r.References
	}
}

func compareWithFull(t *rapid.T, config Config, w *world, tr *Translator, c *client) {
	full := newClient()
	full.receive(t, Full(config, w))
	if d := cmp.Diff(versions(full.resources), versions(c.resources)); d != "" {
		t.Fatalf("incremental differs from full (-full +incremental):\n%s", d)
	}
	if d := cmp.Diff(versions(full.resources), versions(tr.published)); d != "" {
		t.Fatalf("the translator does not know what it published (-full +published):\n%s", d)
	}
	// The verdict of an Ingress that is gone says that it is not served.
	maps.DeleteFunc(c.verdicts, func(ref model.Ref, v model.Verdict) bool {
		return w.ingresses[ref] == nil && !v.Served && len(v.Reports) == 0
	})
	if d := cmp.Diff(full.verdicts, c.verdicts); d != "" {
		t.Fatalf("verdicts differ (-full +incremental):\n%s", d)
	}
	if d := cmp.Diff(full.references, c.references); d != "" {
		t.Fatalf("references differ (-full +incremental):\n%s", d)
	}
}

func versions(resources map[envoy.Name]*envoy.Resource) []string {
	var out []string
	for _, r := range sorted(resources) {
		out = append(out, fmt.Sprint(r.Type, " ", r.Name, " ", r.Version, " ", envoy.Version(r.Any.Value), " ", r.Owners))
	}
	return out
}

func sorted(resources map[envoy.Name]*envoy.Resource) []*envoy.Resource {
	return slices.SortedFunc(maps.Values(resources), func(a, b *envoy.Resource) int { return a.Key().Compare(b.Key()) })
}
