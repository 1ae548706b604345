package rig

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const ingress = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairway}
spec: {controller: fairway.sh/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default}
spec:
  ingressClassName: fairway
  rules:
  - host: web.example
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]
`

// testFairway runs everything together: two Envoys on nodes of their own.
func testFairway(t *testing.T, k *Kube) {
	k.ApplyObjects(t, Service("default", "web"), SliceOf("default", "web", StartBackends(t, "web", 2)...))
	k.Apply(t, ingress)
	f := StartFairway(t, "--kubeconfig="+k.Kubeconfig, "--http-port=80", "--https-port", "443")
	if f.HTTPPort != 80 || f.HTTPSPort != 443 {
		t.Fatalf("ports = %d, %d", f.HTTPPort, f.HTTPSPort)
	}
	var clients []*Client
	for _, id := range []string{"no", "yes"} {
		e := f.StartEnvoy(t, id, EnvoyOptions{Node: NewNode(t)})
		clients = append(clients, f.Client(t, e, ClientOptions{}))
	}
	all := func() {
		t.Helper()
		for _, c := range clients {
			c.Expect(t, 10*time.Second, "http://web.example/", http.StatusOK, "web")
		}
	}
	all()
	if len(f.Metrics(t)) == 0 {
		t.Error("no metrics")
	}
	pid := f.PID()
	f.Restart(t)
	f.WaitReady(t)
	if f.PID() == pid {
		t.Error("the process is the old one")
	}
	all()
	if code := f.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, tail(f.Log(), 20))
	}
	all()
}

func TestRunFairway(t *testing.T) {
	out, _, code := RunFairway(t, "version")
	if code != 0 || !strings.HasPrefix(out, "fairway") {
		t.Errorf("version: code %d, %q", code, out)
	}
	_, errOut, code := RunFairway(t, "serve", "--no-such-flag")
	if code != 1 || !strings.Contains(errOut, "no-such-flag") {
		t.Errorf("unknown flag: code %d, %q", code, errOut)
	}
}
