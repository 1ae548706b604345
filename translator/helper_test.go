package translator

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairway/envoy"
	"fairway/translator/model"
)

// oneIngress is an Ingress with a Service and no endpoint.
const oneIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: web}
spec: {rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {ports: [{name: http, port: 80}]}
`

func refOf(kind model.Kind, namespace, name string) model.Ref {
	return model.Ref{Kind: kind, Namespace: namespace, Name: name}
}

// allDirty marks every Ingress of a world.
func allDirty(w *world) model.Dirty {
	d := newDirty()
	for ref := range w.ingresses {
		d.Config[ref] = struct{}{}
	}
	return d
}

func dirty(refs ...model.Ref) model.Dirty {
	d := newDirty()
	for _, r := range refs {
		d.Config[r] = struct{}{}
	}
	return d
}

func endpointsOf(t testing.TB, r *envoy.Resource) []string {
	t.Helper()
	m, ok := decode(t, r).(*endpointv3.ClusterLoadAssignment)
	if !ok {
		t.Fatalf("%v is no load assignment", r.Key())
	}
	var out []string
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			out = append(out, endpointText(e))
		}
	}
	return out
}

func tableOf(t testing.TB, tr *Translator, name string) *routev3.RouteConfiguration {
	t.Helper()
	return decode(t, tr.published[envoy.Name{Type: envoy.Route, Name: name}]).(*routev3.RouteConfiguration)
}
