package translator

import (
	"cmp"
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1 "k8s.io/api/networking/v1"

	"fairway/envoy"
)

// pathKey is what makes two rules of one host the same rule. The path is
// written as RFC 3986 writes it.
type pathKey struct {
	exact bool
	path  string
}

func (k pathKey) String() string {
	if k.exact {
		return k.path + " (Exact)"
	}
	return k.path + " (Prefix)"
}

// compare orders paths as the Ingress API demands: Exact before Prefix, then
// the longer path first. Of "/foo/" and "/foo" the former counts as longer.
func (k pathKey) compare(o pathKey) int {
	if k.exact != o.exact {
		if k.exact {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(len(o.path), len(k.path)), cmp.Compare(k.path, o.path))
}

// readPath reads the path of a rule. ImplementationSpecific means Prefix here,
// as in ingress-nginx. Envoy compares paths as they are on the wire, so text
// that a client must percent-encode, but may send as it is, is matched in both
// forms: raw is that second form, or empty.
func readPath(p networkingv1.HTTPIngressPath) (k pathKey, raw string, err error) {
	k.exact = p.PathType != nil && *p.PathType == networkingv1.PathTypeExact
	switch {
	case p.Path == "":
		k.path = "/"
		return k, "", nil
	case p.Path[0] != '/':
		return k, "", fmt.Errorf("path %q does not start with /", p.Path)
	case strings.ContainsAny(p.Path, "?#"):
		return k, "", fmt.Errorf("path %q holds ? or #, which no request path does: remove it", p.Path)
	case !normal(p.Path):
		return k, "", fmt.Errorf("path %q holds //, /./ or /../, which are resolved in every request before it is matched: write what they lead to", p.Path)
	}
	encoded, both := encodePath(p.Path)
	if k.path = encoded; both {
		raw = p.Path
	}
	return k, raw, nil
}

// normal reports whether a path is one that a request can have once Envoy has
// merged its slashes and resolved its dots.
func normal(path string) bool {
	elements := strings.Split(strings.TrimSuffix(path[1:], "/"), "/")
	for i, e := range elements {
		if e == "." || e == ".." || e == "" && (i > 0 || len(path) > 1) {
			return false
		}
	}
	return true
}

// match returns how Envoy recognises the path. slashOnly limits a Prefix "/foo/"
// to what is below it, since the host has a Prefix "/foo" of its own.
func (k pathKey) match(slashOnly bool) *routev3.RouteMatch {
	trimmed := strings.TrimRight(k.path, "/")
	switch {
	case k.exact:
		return envoy.MatchExact(k.path)
	case trimmed == "":
		return envoy.MatchPrefix("/")
	case slashOnly:
		return envoy.MatchPrefix(trimmed + "/")
	default:
		return envoy.MatchElements(trimmed)
	}
}

// encodePath returns the path as RFC 3986 writes it, and whether the original
// differs from that and can still be on the wire.
func encodePath(path string) (encoded string, raw bool) {
	var b strings.Builder
	raw = true
	for i := range len(path) {
		c := path[i]
		if isPathByte(c) {
			b.WriteByte(c)
			continue
		}
		raw = raw && c > ' ' && c < 0x7f
		fmt.Fprintf(&b, "%%%02X", c)
	}
	encoded = b.String()
	return encoded, raw && encoded != path
}

// isPathByte reports whether a path may hold the byte as it is. "%" may: it
// starts an encoding that the owner wrote.
func isPathByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return strings.IndexByte("/-._~!$&'()*+,;=:@%", c) >= 0
	}
}
