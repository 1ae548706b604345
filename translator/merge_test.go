package translator

import (
	"fmt"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairway/envoy"
	"fairway/translator/model"
)

// The paths of rules without a host are repeated in every wildcard host, but
// not without a bound, and whoever is affected is told.
func TestFallThroughIsLimited(t *testing.T) {
	for paths, want := range map[int]int{maxFallThrough: maxFallThrough + 2, maxFallThrough + 1: 2} {
		w := newWorld()
		w.add(t, []byte(strings.ReplaceAll(oneIngress, "a.test", `"*.a.test"`)))
		var rules strings.Builder
		for i := range paths {
			fmt.Fprintf(&rules, "{path: /p%d, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}},", i)
		}
		w.add(t, []byte("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: all}\nspec: {rules: [{http: {paths: ["+rules.String()+"]}}]}"))
		tr := New(testConfig)
		tr.Apply(w, allDirty(w))
		table := &routev3.RouteConfiguration{}
		if err := tr.published[envoy.Name{Type: envoy.Route, Name: envoy.HTTPName}].Any.UnmarshalTo(table); err != nil {
			t.Fatal(err)
		}
		for _, h := range table.GetVirtualHosts() {
			// Its own path, its own 404, and the paths of the catch-all host.
			if h.GetName() == "*.a.test" && len(h.GetRoutes()) != want {
				t.Errorf("%d paths: %d routes, want %d", paths, len(h.GetRoutes()), want)
			}
		}
		told := len(tr.verdicts[refOf(model.Ingress, "shop", "web")].Reports) == 1
		if told != (paths > maxFallThrough) {
			t.Errorf("%d paths: %v", paths, tr.verdicts)
		}
	}
}
