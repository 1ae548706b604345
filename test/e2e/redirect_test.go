package e2e

import (
	"net/http"
	"testing"

	"golang.org/x/net/http2/hpack"

	"fairway/test/rig"
)

// Where an Ingress has TLS, plain HTTP is sent to https with the same URL, and
// no path of the host stays open but the challenges of certificate authorities
// (A33).
func TestRedirect(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "redirect")
	for _, s := range []string{"app", "acme"} {
		lab.kube.ApplyObjects(t, rig.Service("redirect", s), rig.SliceOf("redirect", s, rig.StartBackends(t, s, 1)...))
	}
	lab.kube.ApplyObjects(t, rig.TLSSecret("redirect", "cert", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"redirect.test"}})))
	lab.kube.Apply(t, tlsIngress("redirect", "app", "cert", []string{"redirect.test"}, "redirect.test/ app:80"))
	lab.kube.Apply(t, ingress("redirect", "acme", "redirect.test/.well-known/acme-challenge/tok(Exact) acme:80"))
	client(t).Expect(t, wait, "http://redirect.test/.well-known/acme-challenge/tok", 200, "acme")
	client(t).Expect(t, wait, "https://redirect.test/", 200, "app")
	for _, c := range []struct{ host, target, location string }{
		{"redirect.test", "/a?b=c&d=%2f", "https://redirect.test/a?b=c&d=%2f"},
		{"redirect.test", "/a%2Fb/%C3%BC", "https://redirect.test/a%2Fb/%C3%BC"},
		{"redirect.test", "/", "https://redirect.test/"},
		{"redirect.test:8080", "/x", "https://redirect.test/x"},
		{"redirect.test:80", "/x", "https://redirect.test/x"},
		{"REDIRECT.test.", "/x", "https://redirect.test/x"},
		{"redirect.test", "//evil.test/", "https://redirect.test/evil.test/"},
		{"redirect.test", "/.well-known/acme-challenge/other", "https://redirect.test/.well-known/acme-challenge/other"},
		{"redirect.test", "/.well-known/acme-challenge/tok/../../../a", "https://redirect.test/a"},
		{"redirect.test", "/x%0d%0aSet-Cookie:%20a=b", "https://redirect.test/x%0d%0aSet-Cookie:%20a=b"},
	} {
		reply := rawGet(t, c.host, c.target)
		if got := reply.Header.Get("Location"); reply.StatusCode != http.StatusPermanentRedirect || got != c.location {
			t.Errorf("%s%s: %d to %q, want %q", c.host, c.target, reply.StatusCode, got, c.location)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions} {
		reply, err := client(t).Do(deadline(t), method, "http://redirect.test/", nil)
		if err != nil || reply.StatusCode != http.StatusPermanentRedirect {
			t.Errorf("%s: %+v, %v", method, reply, err)
		}
	}
}

// A client cannot talk itself past the redirect, whatever it says about the
// scheme.
func TestRedirectIsNotSpoofed(t *testing.T) {
	t.Parallel()
	pods := tlsSite(t, "closed", "closed.test")
	before := pods[0].Requests()
	for _, headers := range [][]string{
		{"X-Forwarded-Proto: https"}, {"X-Forwarded-Proto: https", "X-Forwarded-For: 10.1.1.1"}, {"X-Forwarded-Scheme: https"}, {"X-Scheme: https"},
		{"X-Forwarded-Port: 443"}, {"X-Forwarded-Ssl: on"}, {"Forwarded: proto=https"}, {"Connection: Upgrade", "Upgrade: websocket"},
	} {
		if err := rawGet(t, "closed.test", "/", headers...).Check(308, ""); err != nil {
			t.Errorf("%v: %v", headers, err)
		}
	}
	fields := h2Get("closed.test", "/", hpack.HeaderField{Name: "x-forwarded-proto", Value: "https"})
	fields[1].Value = "https"
	if reply, err := rawH2(t, fields, nil); err == nil && reply.StatusCode != 308 {
		t.Errorf("h2 with the scheme https: %d", reply.StatusCode)
	}
	// Envoy itself refuses a scheme that the connection is not of.
	if err := raw(t, "GET https://closed.test/ HTTP/1.1\r\nHost: closed.test\r\n\r\n").Check(403, ""); err != nil {
		t.Errorf("a target with a scheme: %v", err)
	}
	if n := pods[0].Requests() - before; n != 0 {
		t.Errorf("the backend got %d requests", n)
	}
}

// The redirect is there while the Secret is not, covers all hosts of the
// Ingress, and no host of others.
func TestRedirectScope(t *testing.T) {
	t.Parallel()
	site(t, "scope-plain", "plain.scope.test", 1)
	lab.kube.Namespace(t, "scope")
	lab.kube.ApplyObjects(t, rig.Service("scope", "web"), rig.SliceOf("scope", "web", rig.StartBackends(t, "web", 1)...))
	lab.kube.Apply(t, tlsIngress("scope", "web", "absent", []string{"listed.scope.test"}, "listed.scope.test/ web:80", "unlisted.scope.test/ web:80", "*.wild.scope.test/ web:80"))
	for url, status := range map[string]int{
		"http://listed.scope.test/": 308, "http://unlisted.scope.test/": 308, "http://x.wild.scope.test/": 308,
		"https://listed.scope.test/": 200, "https://unlisted.scope.test/": 200, "https://x.wild.scope.test/": 200,
		"http://plain.scope.test/": 200, "https://plain.scope.test/": 200,
		"http://x.y.wild.scope.test/": 404, "https://x.y.wild.scope.test/": 404,
	} {
		client(t).Expect(t, wait, url, status, "")
	}
	for _, host := range []string{"x.wild.scope.test", "x.wild.scope.test:80"} {
		if got := client(t).MustGet(t, "http://"+host+"/a").Header.Get("Location"); got != "https://x.wild.scope.test/a" {
			t.Errorf("%s leads to %q", host, got)
		}
	}
}
