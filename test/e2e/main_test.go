// Package e2e proves what users do, with real parts: kube-apiserver, etcd,
// Fairway and Envoy, and HTTP, TLS, WebSocket and gRPC through them.
//
// Tests that only add objects share one lab and keep apart by namespace and
// host names. Tests that kill or configure something start parts of their own.
package e2e

import (
	"fmt"
	"strings"
	"testing"

	"fairway/test/rig"
)

// world is a set of parts that belong together.
type world struct {
	kube    *rig.Kube
	fairway *rig.Fairway
	envoy   *rig.Envoy
}

// lab is the world that most tests share.
var lab world

func TestMain(m *testing.M) {
	rig.Main(m, func(t rig.T) {
		lab.kube = startKube(t)
		lab.fairway = rig.StartFairway(t, "--kubeconfig", lab.kube.Kubeconfig)
		lab.envoy = lab.fairway.StartEnvoy(t, "lab", rig.EnvoyOptions{})
	})
}

const ingressClass = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairway}
spec: {controller: fairway.sh/ingress-controller}
`

// startKube starts an API server that has Fairway's class.
func startKube(t rig.T) *rig.Kube {
	kube := rig.StartKube(t, rig.KubeOptions{})
	kube.Apply(t, ingressClass)
	return kube
}

// ingress returns the manifest of an Ingress of our class. Each rule reads
// "host/path(Type) service:port".
func ingress(namespace, name string, rules ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: %s, name: %s}\nspec:\n  ingressClassName: fairway\n  rules:\n", namespace, name)
	for _, r := range rules {
		where, backend, _ := strings.Cut(r, " ")
		host, path, _ := strings.Cut(where, "/")
		path, pathType, typed := strings.Cut("/"+path, "(")
		if !typed {
			pathType = "Prefix)"
		}
		service, port, _ := strings.Cut(backend, ":")
		fmt.Fprintf(&b, "  - host: %q\n    http:\n      paths:\n      - {path: %q, pathType: %s, backend: {service: {name: %s, port: {number: %s}}}}\n",
			host, path, strings.TrimSuffix(pathType, ")"), service, port)
	}
	return b.String()
}

// site creates a namespace with one Service and its backends, and an Ingress
// for a host, and waits until it answers.
func site(t *testing.T, namespace, host string, backends int) []*rig.Backend {
	t.Helper()
	return lab.site(t, namespace, host, backends)
}

func (w *world) site(t *testing.T, namespace, host string, backends int) []*rig.Backend {
	t.Helper()
	w.kube.Namespace(t, namespace)
	pods := rig.StartBackends(t, "web", backends)
	w.kube.ApplyObjects(t, rig.Service(namespace, "web"), rig.SliceOf(namespace, "web", pods...))
	w.kube.Apply(t, ingress(namespace, "web", host+"/ web:80"))
	w.client(t).Expect(t, wait, "http://"+host+"/", 200, "web")
	return pods
}

func client(t *testing.T) *rig.Client { return lab.client(t) }

func (w *world) client(t *testing.T) *rig.Client {
	return w.fairway.Client(t, w.envoy, rig.ClientOptions{})
}
