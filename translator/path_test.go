package translator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
)

func TestEncodePath(t *testing.T) {
	for _, c := range []struct {
		in, encoded string
		raw         bool // the original can be on the wire as well
	}{
		{"/", "/", false},
		{"/foo/bar.html", "/foo/bar.html", false},
		{"/-._~!$&'()*+,;=:@", "/-._~!$&'()*+,;=:@", false},
		{"/%7Bx%7D", "/%7Bx%7D", false},
		{"/100%", "/100%", false},
		{"/{a|b}", "/%7Ba%7Cb%7D", true},
		{`/"<>^[]\`, "/%22%3C%3E%5E%5B%5D%5C", true},
		{"/`", "/%60", true},
		{"/a b", "/a%20b", false},
		{"/a\tb\r\n\x00", "/a%09b%0D%0A%00", false},
		{"/é{", "/%C3%A9%7B", false},
		{"/\xff", "/%FF", false},
		{"/\x7f", "/%7F", false},
	} {
		if encoded, raw := encodePath(c.in); encoded != c.encoded || raw != c.raw {
			t.Errorf("%q: got %q %v, want %q %v", c.in, encoded, raw, c.encoded, c.raw)
		}
	}
}

func TestReadPath(t *testing.T) {
	exact, prefix, specific, unknown := networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific, networkingv1.PathType("Other")
	for _, c := range []struct {
		path string
		typ  *networkingv1.PathType
		want string
	}{
		{"/foo", &exact, "/foo (Exact)"},
		{"/foo", &prefix, "/foo (Prefix)"},
		{"/foo", &specific, "/foo (Prefix)"},
		{"/foo", &unknown, "/foo (Prefix)"},
		{"/foo", nil, "/foo (Prefix)"},
		{"", nil, "/ (Prefix)"},
		{"", &exact, "/ (Exact)"},
		{"foo", &specific, `path "foo" does not start with /`},
		{"/a?b", &specific, `path "/a?b" holds ? or #, which no request path does: remove it`},
		{"/a#b", &specific, `path "/a#b" holds ? or #, which no request path does: remove it`},
	} {
		key, _, err := readPath(networkingv1.HTTPIngressPath{Path: c.path, PathType: c.typ})
		got := key.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: got %s, want %s", c.path, got, c.want)
		}
	}
}

// The tables of the Kubernetes documentation and of the conformance suite:
// which of the rules takes a request. P is Prefix, E Exact.
func TestMatching(t *testing.T) {
	for _, c := range []struct {
		rules   string
		want    map[string]string // request → rule; "" is none
		comment string
	}{
		{rules: "P/", want: map[string]string{"/": "P/", "/any/path": "P/"}},
		{rules: "E/foo", want: map[string]string{"/foo": "E/foo", "/bar": "", "/foo/": "", "/FOO": ""}},
		{rules: "E/foo/", want: map[string]string{"/foo": "", "/foo/": "E/foo/"}},
		{rules: "P/foo", want: map[string]string{"/foo": "P/foo", "/foo/": "P/foo", "/foo/x": "P/foo", "/foobar": "", "/FOO": "", "/fo": ""}},
		{rules: "P/foo/", want: map[string]string{"/foo": "P/foo/", "/foo/": "P/foo/", "/foo/x": "P/foo/", "/foobar": ""}},
		{rules: "P/aaa/bb", want: map[string]string{"/aaa/bbb": ""}},
		{rules: "P/aaa/bbb", want: map[string]string{"/aaa/bbb": "P/aaa/bbb", "/aaa/bbb/": "P/aaa/bbb", "/aaa/bbb/ccc": "P/aaa/bbb", "/aaa/bbbxyz": ""}},
		{rules: "P/aaa/bbb/", want: map[string]string{"/aaa/bbb": "P/aaa/bbb/", "/aaa/bbb/": "P/aaa/bbb/"}},
		{rules: "P/ P/aaa", want: map[string]string{"/aaa/ccc": "P/aaa", "/aaaccc": "P/"}},
		{rules: "P/ P/aaa P/aaa/bbb", want: map[string]string{"/aaa/bbb": "P/aaa/bbb", "/ccc": "P/", "/aaa/ccc": "P/aaa"}},
		{rules: "P/aaa", want: map[string]string{"/ccc": ""}},
		{rules: "P/foo E/foo", want: map[string]string{"/foo": "E/foo", "/foo/": "P/foo"}},
		{rules: "P/foo P/foo/", want: map[string]string{"/foo": "P/foo", "/foo/": "P/foo/", "/foo/x": "P/foo/", "/foobar": ""}},
		{rules: "P/ P/foo/", want: map[string]string{"/": "P/", "/foo": "P/foo/", "/foobar": "P/"}},
		{rules: "E/ P/foo", want: map[string]string{"/": "E/", "/x": ""}},
		{rules: "P/{a|b}", want: map[string]string{"/{a|b}": "P/{a|b}", "/%7Ba%7Cb%7D/x": "P/{a|b}", "/a": "", "/b": ""}},
		{rules: "P/é P/é/x/y P/%C3%A9/x", want: map[string]string{"/%C3%A9": "P/é", "/%C3%A9/x": "P/%C3%A9/x", "/%C3%A9/x/y/z": "P/é/x/y"}},
		{rules: "P/.*", want: map[string]string{"/.*": "P/.*", "/xx": ""}},
	} {
		routes := routesFor(t, c.rules)
		for request, want := range c.want {
			if got := route404(routes, request); got != want {
				t.Errorf("%s: %s goes to %q, want %q", c.rules, request, got, want)
			}
		}
	}
}

// routesFor merges rules as one host does; each route is named by its rule.
func routesFor(t testing.TB, rules string) []*routev3.Route {
	w := newWorld()
	for i, rule := range strings.Fields(rules) {
		typ := map[byte]networkingv1.PathType{'E': networkingv1.PathTypeExact, 'P': networkingv1.PathTypePrefix}[rule[0]]
		ing := &networkingv1.Ingress{}
		ing.Namespace, ing.Name = "a", fmt.Sprint("i", i)
		ing.Spec.Rules = []networkingv1.IngressRule{{Host: "a.test", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: rule[1:], PathType: &typ, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s"}}}}}}}}
		w.put(ing)
	}
	tr := New(testConfig)
	tr.Apply(w, allDirty(w))
	all := strings.Fields(rules)
	var out []*routev3.Route
	for _, h := range tableOf(t, tr, "http").GetVirtualHosts() {
		if h.GetName() != "a.test" {
			continue
		}
		for _, r := range h.GetRoutes() {
			var i int
			if _, err := fmt.Sscanf(r.GetName(), "a/i%d", &i); err != nil {
				t.Fatal(err)
			}
			r.Name = all[i]
			out = append(out, r)
		}
	}
	return out
}

// route404 chooses a route as Envoy does: the first that matches.
func route404(routes []*routev3.Route, path string) string {
	for _, r := range routes {
		if envoyMatches(r.GetMatch(), path) {
			return r.GetName()
		}
	}
	return ""
}

func envoyMatches(m *routev3.RouteMatch, path string) bool {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		return path == p.Path
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(path, p.Prefix)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return path == p.PathSeparatedPrefix || strings.HasPrefix(path, p.PathSeparatedPrefix+"/")
	}
	panic("unknown matcher")
}

// Whatever the rules, the first route that matches belongs to the rule that
// Kubernetes means: Exact, else the longest Prefix by elements.
func TestMatchingAgainstTheAPI(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "b", "ab", "{a}", "é", "%C3%A9"})
		path := func(label string) string {
			return "/" + strings.Join(rapid.SliceOfN(segment, 0, 3).Draw(r, label), "/")
		}
		seen := map[string]bool{}
		var rules []string
		for range rapid.IntRange(1, 6).Draw(r, "rules") {
			rule := rapid.SampledFrom([]string{"E", "P"}).Draw(r, "type") + path("path")
			if encoded, _ := encodePath(rule); !seen[encoded] {
				seen[encoded] = true
				rules = append(rules, rule)
			}
		}
		request, _ := encodePath(path("request"))
		routes := routesFor(t, strings.Join(rules, " "))
		if got, want := route404(routes, request), meant(rules, request); got != want {
			r.Fatalf("%v: %s goes to %q, want %q", rules, request, got, want)
		}
	})
}

func meant(rules []string, request string) string {
	best, length := "", -1
	for _, rule := range rules {
		path, _ := encodePath(rule[1:])
		elements, asked := strings.Split(strings.Trim(path, "/"), "/"), strings.Split(strings.Trim(request, "/"), "/")
		switch {
		case rule[0] == 'E' && path == request:
			return rule
		case rule[0] == 'P' && path == "/":
			elements = nil
			fallthrough
		case rule[0] == 'P':
			if len(elements) > length && len(elements) <= len(asked) && slices.Equal(elements, asked[:len(elements)]) {
				best, length = rule, len(elements)
			}
		}
	}
	return best
}

func TestPathOrder(t *testing.T) {
	want := []pathKey{{true, "/aaa"}, {true, "/a"}, {true, "/b"}, {false, "/aaaa"}, {false, "/foo/"}, {false, "/bar"}, {false, "/foo"}, {false, "/"}}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, pathKey.compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
