package e2e

import (
	"testing"

	"fairway/test/rig"
)

// An Ingress's default backend takes what its rules and all others leave, also
// of clients that name no host (A32, A35).
func TestDefaultBackend(t *testing.T) {
	t.Parallel()
	s := startSide(t, "catch-all")
	lab.kube.Namespace(t, "catch-all")
	for _, service := range []string{"s0", "s1"} {
		lab.kube.ApplyObjects(t, rig.Service("catch-all", service), rig.SliceOf("catch-all", service, rig.StartBackends(t, service, 1)...))
	}
	const fallback = "  defaultBackend: {service: {name: s0, port: {number: 80}}}\n"
	s.apply(t, ingress("catch-all", "web", "a.catch.test/x s1:80", "*.catch.test/y s1:80")+fallback)
	c := s.client(t)
	c.Expect(t, wait, "http://a.catch.test/x", 200, "s1")
	for url, service := range map[string]string{
		"http://a.catch.test/other": "s0", "http://a.catch.test/": "s0", "http://unknown.test/": "s0", "http://unknown.test/x": "s0",
		"http://b.catch.test/y": "s1", "http://b.catch.test/": "s0", "http://b.b.catch.test/y": "s0", "http://127.0.0.1/": "s0",
		"https://unknown.test/": "s0", "https://a.catch.test/x": "s1",
	} {
		if err := c.MustGet(t, url).Check(200, service); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := rawTo(t, s.http(), "GET /none HTTP/1.0\r\n\r\n").Check(200, "s0"); err != nil {
		t.Errorf("HTTP/1.0 without Host: %v", err)
	}
	s.apply(t, ingress("catch-all", "web", "a.catch.test/x s1:80", "*.catch.test/y s1:80"))
	c.Expect(t, wait, "http://unknown.test/", 404, "")
	if err := c.MustGet(t, "http://a.catch.test/other").Check(404, ""); err != nil {
		t.Error(err)
	}
}
