package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairway/test/rig"
)

// received sends a request and returns the headers that the backend got, by
// lower-case name.
func received(t *testing.T, host string, headers ...string) map[string][]string {
	t.Helper()
	reply := rawGet(t, host, "/", headers...)
	if err := reply.Check(200, "web"); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{"host": {reply.Echo.Host}}
	for name, values := range reply.Echo.Headers {
		out[strings.ToLower(name)] = values
	}
	return out
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// What a backend gets from a plain request: this and nothing else.
func TestBackendHeaders(t *testing.T) {
	t.Parallel()
	site(t, "headers", "headers.test", 1)
	got := received(t, "headers.test")
	if id := got["x-request-id"]; len(id) != 1 || !uuid.MatchString(id[0]) {
		t.Errorf("X-Request-ID is %q", id)
	}
	delete(got, "x-request-id")
	want := map[string][]string{
		"host":               {"headers.test"},
		"x-real-ip":          {"127.0.0.1"},
		"x-forwarded-for":    {"127.0.0.1"},
		"x-forwarded-host":   {"headers.test"},
		"x-forwarded-port":   {"80"},
		"x-forwarded-proto":  {"http"},
		"x-forwarded-scheme": {"http"},
		"x-scheme":           {"http"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBackendHeadersOverTLS(t *testing.T) {
	t.Parallel()
	site(t, "headers-tls", "headers-tls.test", 1)
	for _, c := range []*rig.Client{client(t), lab.fairway.Client(t, lab.envoy, rig.ClientOptions{HTTP2: true})} {
		reply := c.MustGet(t, "https://headers-tls.test:8443/", rig.Header("X-Forwarded-Proto", "http"), rig.Header("X-Forwarded-Port", "80"))
		if err := reply.Check(200, "web"); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"X-Forwarded-Host": "headers-tls.test:8443", "X-Forwarded-Port": "443", "X-Forwarded-Proto": "https",
			"X-Forwarded-Scheme": "https", "X-Scheme": "https", "X-Real-IP": "127.0.0.1", "X-Forwarded-For": "127.0.0.1",
		} {
			if got := reply.Echo.Headers[http.CanonicalHeaderKey(name)]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %q, want %q", reply.Proto, name, got, want)
			}
		}
		if reply.Echo.Host != "headers-tls.test:8443" {
			t.Errorf("Host is %q", reply.Echo.Host)
		}
	}
}

// A client cannot speak for the proxy. Each case: what it sends, and every
// value of the headers that are looked at.
func TestSpoofedHeaders(t *testing.T) {
	t.Parallel()
	site(t, "spoofed", "spoofed.test", 1)
	none := []string(nil)
	for name, c := range map[string]struct {
		send []string
		want map[string][]string
	}{
		"the client's chain is kept aside": {
			[]string{"X-Forwarded-For: 10.1.1.1, 10.2.2.2", "X-Forwarded-Host: evil.test"},
			map[string][]string{
				"x-forwarded-for": {"127.0.0.1"}, "x-real-ip": {"127.0.0.1"}, "x-original-forwarded-for": {"10.1.1.1, 10.2.2.2"},
				"x-forwarded-host": {"spoofed.test"}, "x-original-forwarded-host": {"evil.test"},
			},
		},
		"the proxy's own word for what a client said": {
			[]string{"X-Original-Forwarded-For: 10.3.3.3", "X-Original-Forwarded-Host: evil.test"},
			map[string][]string{"x-original-forwarded-for": none, "x-original-forwarded-host": none, "x-forwarded-for": {"127.0.0.1"}},
		},
		"both": {
			[]string{"X-Original-Forwarded-For: 10.3.3.3", "X-Forwarded-For: 10.1.1.1"},
			map[string][]string{"x-original-forwarded-for": {"10.1.1.1"}},
		},
		"scheme and port": {
			[]string{"X-Forwarded-Proto: https", "X-Forwarded-Scheme: https", "X-Scheme: https", "X-Forwarded-Port: 443", "X-Real-IP: 10.1.1.1"},
			map[string][]string{
				"x-forwarded-proto": {"http"}, "x-forwarded-scheme": {"http"}, "x-scheme": {"http"}, "x-forwarded-port": {"80"}, "x-real-ip": {"127.0.0.1"},
			},
		},
		"twice": {
			[]string{"X-Real-IP: 10.1.1.1", "X-Real-IP: 10.2.2.2", "X-Forwarded-For: 10.1.1.1", "X-Forwarded-For: 10.2.2.2", "X-Scheme: a", "X-Scheme: b"},
			map[string][]string{
				"x-real-ip": {"127.0.0.1"}, "x-forwarded-for": {"127.0.0.1"}, "x-original-forwarded-for": {"10.1.1.1,10.2.2.2"}, "x-scheme": {"http"},
			},
		},
		"the client asks to drop the proxy's headers on the way": {
			[]string{"Connection: x-real-ip, x-request-id, x-scheme", "X-Request-ID: abc"},
			map[string][]string{"x-real-ip": {"127.0.0.1"}, "x-scheme": {"http"}, "connection": none},
		},
		"a client certificate": {
			[]string{"ssl-client-verify: SUCCESS", "SSL-Client-Subject-DN: CN=root", "ssl-client-issuer-dn: CN=ca", "ssl-client-cert: x", "ssl-client-cert: y"},
			map[string][]string{"ssl-client-verify": none, "ssl-client-subject-dn": none, "ssl-client-issuer-dn": none, "ssl-client-cert": none},
		},
		"a proxy for CGI programs":    {[]string{"Proxy: http://evil.test"}, map[string][]string{"proxy": none}},
		"an underscore for a hyphen":  {[]string{"X_Real_IP: 10.1.1.1", "ssl_client_verify: SUCCESS"}, map[string][]string{"x_real_ip": none, "ssl_client_verify": none}},
		"a request id of the client":  {[]string{"X-Request-ID: abc-123"}, map[string][]string{"x-request-id": {"abc-123"}}},
		"what is none of our concern": {[]string{"Authorization: Basic eDp5", "Cookie: a=b", "Via: 1.1 x"}, map[string][]string{"authorization": {"Basic eDp5"}, "cookie": {"a=b"}, "via": {"1.1 x"}}},
		"text that looks like a formatter": {[]string{"X-Forwarded-For: %REQ(cookie)%", "Cookie: secret=1"},
			map[string][]string{"x-original-forwarded-for": {"%REQ(cookie)%"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := received(t, "spoofed.test", c.send...)
			for header, want := range c.want {
				if !slices.Equal(got[header], want) {
					t.Errorf("%s is %q, want %q", header, got[header], want)
				}
			}
		})
	}
}

// Headers that steer Envoy itself are taken from clients in no direction.
func TestEnvoyHeadersStayInside(t *testing.T) {
	t.Parallel()
	site(t, "steered", "steered.test", 1)
	got := received(t, "steered.test",
		"X-Envoy-Internal: true", "X-Envoy-External-Address: 10.1.1.1", "X-Envoy-Force-Trace: 1", "X-Envoy-Retry-On: 5xx",
		"X-Envoy-Retry-Grpc-On: cancelled", "X-Envoy-Max-Retries: 9", "X-Envoy-Upstream-Alt-Stat-Name: x", "X-Envoy-Upstream-Rq-Timeout-Ms: 1",
		"X-Envoy-Upstream-Rq-Per-Try-Timeout-Ms: 1", "X-Envoy-Upstream-Rq-Timeout-Alt-Response: 1", "X-Envoy-Expected-Rq-Timeout-Ms: 1",
		"X-Envoy-Hedge-On-Per-Try-Timeout: 1", "X-Envoy-Retriable-Status-Codes: 200", "X-Envoy-Retriable-Header-Names: host",
		"X-Envoy-Downstream-Service-Cluster: x", "X-Envoy-Downstream-Service-Node: x", "X-Envoy-Decorator-Operation: x", "X-Envoy-Ip-Tags: x",
		"X-Envoy-Attempt-Count: 7", "X-Envoy-Original-Path: /evil", "X-Envoy-Original-Host: evil.test", "X-Envoy-Original-Url: http://evil.test/",
		"X-Envoy-Auth-Partial-Body: true", "X-Envoy-Peer-Metadata: x", "X-Envoy-Is-Timeout-Retry: 1",
	)
	for name := range got {
		if strings.HasPrefix(name, "x-envoy") {
			t.Errorf("the backend got %s: %q", name, got[name])
		}
	}
}

// A client sees Fairway's name, nothing of Envoy, and what the backend said.
func TestResponseHeaders(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "responses")
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "web", Handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "secret/1.0")
		w.Header().Set("X-Own", "kept")
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header()["Date"] = []string{"Thu, 01 Jan 1970 00:00:00 GMT"}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short"))
	}})
	lab.kube.ApplyObjects(t, rig.Service("responses", "web"), rig.SliceOf("responses", "web", pod))
	lab.kube.Apply(t, ingress("responses", "web", "responses.test/ web:80"))
	client(t).Expect(t, wait, "http://responses.test/", 418, "")
	reply := rawGet(t, "responses.test", "/")
	want := http.Header{
		"Server": {"fairway"}, "X-Own": {"kept"}, "Set-Cookie": {"a=1", "b=2"}, "Date": {"Thu, 01 Jan 1970 00:00:00 GMT"},
		"Content-Length": {"5"}, "Content-Type": {"text/plain; charset=utf-8"},
	}
	if diff := cmp.Diff(want, reply.Header); diff != "" {
		t.Error(diff)
	}
	if string(reply.Body) != "short" {
		t.Errorf("the body is %q", reply.Body)
	}
	own := rawGet(t, "nobody.test", "/")
	own.Header.Del("Date")
	if diff := cmp.Diff(http.Header{"Server": {"fairway"}, "Content-Length": {"0"}}, own.Header); diff != "" {
		t.Errorf("an answer of Fairway's own: %s", diff)
	}
}
