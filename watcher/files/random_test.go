package files

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"fairway/translator/model"
)

// text draws the content of a file: any number of documents, some of them
// about the same objects as in other files, some broken.
func text(t *rapid.T) string {
	out := ""
	for range rapid.IntRange(0, 3).Draw(t, "documents") {
		name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
		n := rapid.IntRange(1, 3).Draw(t, "variant")
		out += "---\n" + rapid.SampledFrom([]string{
			fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: %d}]}\n", name, n),
			fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, labels: {kubernetes.io/service-name: s%d}}\naddressType: IPv4\n", name, n),
			fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %s}\nspec: {defaultBackend: {service: {name: s%d, port: {number: 80}}}}\n", name, n),
			fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: %s, annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}}\nspec: {controller: c%d}\n", name, n),
			fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {k: v%d}\n", name, n),
			fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: v%d}\n", name, n),
			fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {k: v%d}}\n", name, n),
			"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspeck: {}\n",
		}).Draw(t, "document")
	}
	return out
}

// Whoever follows the dirty keys alone knows the same world as whoever reads
// everything. What a scan leaves behind has no influence, except that broken
// documents keep their objects.
func TestDirtyKeysTellEverything(t *testing.T) {
	dir := t.TempDir()
	options := Options{IngressClass: "fairway", ControllerClass: "c1", OnProblem: func(string, error) {}}
	rapid.Check(t, func(t *rapid.T) {
		s, last, mirror := newScanner(options), newWorld(), map[model.Ref]any{}
		endpoints := map[model.Ref][]*discoveryv1.EndpointSlice{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			path := filepath.Join(dir, rapid.SampledFrom([]string{"1.yaml", "2.yaml", "3.yaml"}).Draw(t, "file"))
			if rapid.Bool().Draw(t, "remove") {
				_ = os.Remove(path) // it may not be there
			} else if err := os.WriteFile(path, []byte(text(t)), 0o644); err != nil {
				t.Fatal(err)
			}
			now := settled(t, s, dir)
			src := newSource(now)
			config, services := diff(last, now)
			for _, ref := range config {
				mirror[ref] = lookup(src, ref)
			}
			for _, ref := range services {
				endpoints[ref] = sorted(src.Slices(ref))
			}
			last = now
			compare(t, now, mirror, endpoints)
		}
	})
}

// settled scans until nothing is to be looked at again.
func settled(t *rapid.T, s *scanner, dir string) *world {
	for {
		tree, err := walk(dir)
		if err != nil {
			t.Fatal(err)
		}
		if w, again := s.scan(tree); !again {
			return w
		}
	}
}

func lookup(s *source, r model.Ref) any {
	switch r.Kind {
	case model.Ingress:
		return s.Ingress(r)
	case model.Service:
		return s.Service(r)
	case model.Secret:
		return s.Secret(r)
	case model.ConfigMap:
		return s.ConfigMap(r)
	case model.Class:
		return s.Class(r.Name)
	}
	return s.Namespace(r.Name)
}

// sorted orders slices by name: the source leaves the order open.
func sorted(s []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.SortedFunc(slices.Values(s), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

func compare(t *rapid.T, w *world, mirror map[model.Ref]any, endpoints map[model.Ref][]*discoveryv1.EndpointSlice) {
	src := newSource(w)
	for _, kind := range []model.Kind{model.Ingress, model.Service, model.Secret, model.ConfigMap, model.Class, model.Namespace} {
		for _, name := range []string{"a", "b", "c", "fairway"} {
			ref := model.Ref{Kind: kind, Namespace: "default", Name: name}
			if kind == model.Class || kind == model.Namespace {
				ref.Namespace = ""
			}
			want, got := lookup(src, ref), mirror[ref]
			if got == nil {
				got = lookup(newSource(newWorld()), ref)
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("%s: got %v, want %v", ref, got, want)
			}
		}
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		ref := model.Ref{Kind: model.Service, Namespace: "default", Name: name}
		if got, want := endpoints[ref], sorted(src.Slices(ref)); !equality.Semantic.DeepEqual(got, want) {
			t.Fatalf("slices of %s: got %v, want %v", ref, got, want)
		}
	}
}
