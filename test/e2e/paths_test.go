package e2e

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"fairway/test/rig"
)

// Which route a target takes, and what of it reaches the backend: the router,
// and a protection on a path, must see the path that the backend sees. Encoded
// slashes are the known exception: they are left alone, as nginx does.
func TestPathNormalisation(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "normal")
	for _, s := range []string{"admin", "root", "foo"} {
		lab.kube.ApplyObjects(t, rig.Service("normal", s), rig.SliceOf("normal", s, rig.StartBackends(t, s, 1)...))
	}
	lab.kube.Apply(t, ingress("normal", "web", "normal.test/ root:80", "normal.test/admin admin:80", "normal.test/foo foo:80"))
	client(t).Expect(t, wait, "http://normal.test/foo", 200, "foo")
	for _, c := range []struct{ target, service, path string }{
		// Dots, doubled slashes and back slashes are resolved first.
		{"/admin", "admin", "/admin"},
		{"/admin/", "admin", "/admin/"},
		{"/admin/x?y=/../z", "admin", "/admin/x?y=/../z"},
		{"/foo/%2e%2e/admin", "admin", "/admin"},
		{"/foo/../admin", "admin", "/admin"},
		{"/x/../../admin", "admin", "/admin"},
		{"/./admin", "admin", "/admin"},
		{"/%2e/admin", "admin", "/admin"},
		{"/%61dmin", "admin", "/admin"},
		{"/%61%64%6d%69%6e", "admin", "/admin"},
		{"/x%23/../admin", "admin", "/admin"},
		{"/x;/../admin", "admin", "/admin"},
		{"//admin", "admin", "/admin"},
		{"///admin", "admin", "/admin"},
		{`/x\..\admin`, "admin", "/admin"},
		{`/\admin`, "admin", "/admin"},
		{"/foo/..;/admin", "admin", "/admin"},
		{"/admin/../foo", "foo", "/foo"},
		{"/admin/%2e%2e", "root", "/"},
		{"/admin/..", "root", "/"},
		{"/x//y", "root", "/x/y"},
		{"/x/./admin", "root", "/x/admin"},
		{"/..", "root", "/"},
		// A parameter is a part of its segment.
		{"/admin;x", "root", "/admin;x"},
		{"/admin/;x", "admin", "/admin/;x"},
		{"/api../admin", "root", "/api../admin"},
		{"/api%2e%2e/admin", "root", "/api../admin"},
		{"/api%2e/admin", "root", "/api./admin"},
		{"/adminx", "root", "/adminx"},
		{"/ADMIN", "root", "/ADMIN"},
		// What is encoded for a reason stays so, and nothing is decoded twice.
		{"/x%2f..%2fadmin", "root", "/x%2f..%2fadmin"},
		{"/a%2Fb", "root", "/a%2Fb"},
		{"/%2fadmin", "root", "/%2fadmin"},
		{"/admin%2fx", "root", "/admin%2fx"},
		{"/admin/a%2Fb", "admin", "/admin/a%2Fb"},
		{"/x%5c..%5cadmin", "root", "/x%5c..%5cadmin"},
		{"/a%5cb", "root", "/a%5cb"},
		{"/a%20b", "root", "/a%20b"},
		{"/%c3%bc", "root", "/%c3%bc"},
		{"/x%3fadmin", "root", "/x%3fadmin"},
		{"/%252e%252e/admin", "root", "/%252e%252e/admin"},
		{"/x/%252f..%252fadmin", "root", "/x/%252f..%252fadmin"},
		{"/%c0%ae%c0%ae/admin", "root", "/%c0%ae%c0%ae/admin"},
		{"/x/%c0%af../admin", "root", "/x/%c0%af../admin"},
		{"/?a=//b&c=%2f", "root", "/?a=//b&c=%2f"},
	} {
		t.Run(c.target, func(t *testing.T) {
			two, err := rawH2(t, h2Get("normal.test", c.target), nil)
			if err != nil {
				t.Fatal(err)
			}
			for proto, reply := range map[string]*rig.Reply{"HTTP/1.1": rawGet(t, "normal.test", c.target), "h2": two} {
				if err := reply.Check(200, c.service); err != nil {
					t.Errorf("%s: %v", proto, err)
				} else if reply.Echo.Path != c.path {
					t.Errorf("%s: the backend got %q, want %q", proto, reply.Echo.Path, c.path)
				}
			}
		})
	}
}

// Targets that are no paths at all.
func TestMalformedTargets(t *testing.T) {
	t.Parallel()
	site(t, "malformed", "malformed.test", 1)
	cases := []struct {
		target string
		h1, h2 int // 0: the stream is reset
	}{
		{"/x%00y", 400, 400},
		{"/%00/../admin", 400, 400},
		{"/%", 400, 400},
		{"/%zz", 400, 400},
		{"/x#frag", 400, 400},
		{"/a b", 400, 0},
		{"/\xfc", 400, 200}, // normalised to /%FC
		{"*", 400, 0},
		{"x", 400, 0},
		{"", 400, 0},
	}
	sent := make([]*http2.Framer, len(cases))
	for i, c := range cases {
		sent[i] = sendH2(t, h2Get("malformed.test", c.target), nil)
	}
	for i, c := range cases {
		if reply := rawGet(t, "malformed.test", c.target); reply.StatusCode != c.h1 {
			t.Errorf("HTTP/1.1 %q: status %d, want %d", c.target, reply.StatusCode, c.h1)
		}
		status := 0
		if reply, err := readH2(sent[i]); err == nil {
			status = reply.StatusCode
		}
		if status != c.h2 {
			t.Errorf("h2 %q: status %d, want %d", c.target, status, c.h2)
		}
	}
}

// A path of an Ingress that people write in clear is matched in the form that
// clients send, and never as a pattern (A04, A15).
func TestOddPaths(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "odd")
	rules := []string{}
	for service, path := range map[string]string{
		"braces":  "/{set:alpha|beta|gamma}(ImplementationSpecific",
		"pattern": "/re(ImplementationSpecific",
		"space":   "/a b(Prefix",
		"umlaut":  "/ü(Prefix",
		"percent": "/100%25(Prefix",
		"encoded": "/enc%20oded(Exact",
		"slash":   "/foo/(Prefix",
		"root":    "/(Prefix",
		"format":  "/%REQ(Authorization)%(ImplementationSpecific",
	} {
		lab.kube.ApplyObjects(t, rig.Service("odd", service), rig.SliceOf("odd", service, rig.StartBackends(t, service, 1)...))
		path, kind := path[:strings.LastIndexByte(path, '(')], path[strings.LastIndexByte(path, '(')+1:]
		rules = append(rules, `{path: "`+path+`", pathType: `+kind+`, backend: {service: {name: `+service+`, port: {number: 80}}}}`)
	}
	lab.kube.Apply(t, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: odd, name: web}
spec:
  ingressClassName: fairway
  rules: [{host: odd.test, http: {paths: [`+strings.Join(rules, ", ")+`]}}]
`)
	client(t).Expect(t, wait, "http://odd.test/foo", 200, "slash")
	for target, service := range map[string]string{
		"/": "root", "/any": "root", "/foobar": "root", "/fo": "root",
		"/foo": "slash", "/foo/": "slash", "/foo/x": "slash", "/foo?x=1": "slash",
		"/%7Bset:alpha%7Cbeta%7Cgamma%7D": "braces", "/{set:alpha|beta|gamma}": "braces", "/alpha": "root", "/set:alpha": "root",
		"/re": "pattern", "/re/x": "pattern", "/r.": "root",
		"/a%20b": "space", "/a%20b/c": "space", "/a": "root", "/a+b": "root",
		"/%C3%BC": "umlaut", "/u": "root",
		"/100%25": "percent", "/100": "root",
		"/enc%20oded": "encoded", "/enc": "root",
		"/REQ(Authorization)": "root",
	} {
		if err := rawGet(t, "odd.test", target).Check(200, service); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// Every method reaches the backend.
func TestMethodsPass(t *testing.T) {
	t.Parallel()
	site(t, "methods", "methods.test", 1)
	for _, method := range []string{"HEAD", "OPTIONS", "PATCH", "DELETE", "PROPFIND", "PURGE"} {
		fields := h2Get("methods.test", "/")
		fields[0].Value = method
		reply, err := rawH2(t, fields, nil)
		if err != nil || reply.StatusCode != 200 || method != "HEAD" && reply.Echo.Method != method {
			t.Errorf("%s: %+v, %v", method, reply, err)
		}
	}
}
