package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"fairway/test/rig"
)

// side is a Fairway and an Envoy beside those of the lab, for tests that
// configure them in their own way. It serves a class of its own from the lab's
// API server.
type side struct {
	world
	class string
}

// startSide starts a Fairway with more flags. Its Envoy closes what it drains
// after a second and writes its access log at once, so that tests see it.
func startSide(t *testing.T, class string, flags ...string) *side {
	t.Helper()
	s := &side{class: class, world: world{kube: lab.kube}}
	lab.kube.Apply(t, fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: %s}\nspec: {controller: fairway.sh/%[1]s}\n", class))
	s.fairway = rig.StartFairway(t, append([]string{"--kubeconfig", lab.kube.Kubeconfig, "--controller-class", "fairway.sh/" + class}, flags...)...)
	flags = []string{"--drain-time-s", "1", "--drain-strategy", "immediate", "--file-flush-interval-msec", "50"}
	s.envoy = s.fairway.StartEnvoy(t, class, rig.EnvoyOptions{Flags: flags})
	return s
}

// apply applies an Ingress as one of this class.
func (s *side) apply(t *testing.T, manifest string) {
	t.Helper()
	lab.kube.Apply(t, strings.ReplaceAll(manifest, "ingressClassName: fairway\n", "ingressClassName: "+s.class+"\n"))
}

func (s *side) http() string {
	return net.JoinHostPort(s.envoy.IP, strconv.Itoa(s.fairway.HTTPPort))
}

func (s *side) https() string {
	return net.JoinHostPort(s.envoy.IP, strconv.Itoa(s.fairway.HTTPSPort))
}

// tlsSite is tlsSite for this class, whose Secret may be one that exists.
func (s *side) tlsSite(t *testing.T, namespace, host, secret string) {
	t.Helper()
	name := strings.ReplaceAll(host, ".", "-")
	s.apply(t, tlsIngress(namespace, name, secret, []string{host}, host+"/ web:80"))
	s.client(t).Expect(t, wait, "https://"+host+"/", 200, "web")
}

// certificate writes a Secret for hosts whose certificate has this common name.
func certificate(t *testing.T, namespace, secret, commonName string, hosts ...string) {
	t.Helper()
	lab.kube.ApplyObjects(t, rig.TLSSecret(namespace, secret, rig.SelfSigned(t, rig.CertOptions{CommonName: commonName, Hosts: hosts})))
}

// webService creates a namespace with the Service web.
func webService(t *testing.T, namespace string) {
	t.Helper()
	lab.kube.Namespace(t, namespace)
	lab.kube.ApplyObjects(t, rig.Service(namespace, "web"), rig.SliceOf(namespace, "web", rig.StartBackends(t, "web", 1)...))
}

// openSocket opens a websocket that stays open until the test ends.
func (s *side) openSocket(t *testing.T, url string) *socket {
	t.Helper()
	conn, _, err := s.client(t).WebSocket(context.Background(), url, nil)
	if err != nil {
		t.Fatalf("websocket to %s: %v", url, err)
	}
	t.Cleanup(func() { conn.Close() })
	return &socket{url: url, conn: conn}
}
