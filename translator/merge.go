package translator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairway/envoy"
	"fairway/translator/model"
)

// merged is a host after its conflicts were decided.
type merged struct {
	name      string
	routes    []mergedRoute // in the order of matching
	fallback  target
	tls       bool
	below     *merged // for a wildcard host: the catch-all host
	conflicts map[model.Ref][]model.Report
}

type mergedRoute struct {
	key       pathKey
	raw       string
	target    target
	from      model.Ref
	slashOnly bool
}

// merge decides which claim gets which path: the oldest one.
func (p *pass) merge(h *host) *merged {
	m := &merged{name: h.name, fallback: target{status: 404}, conflicts: map[model.Ref][]model.Report{}}
	claims := slices.SortedFunc(maps.Values(h.claims), func(a, b *claim) int { return a.from.compareAge(b.from) })
	m.chooseFallback(claims, p.globalFallback())
	owners := map[pathKey]model.Ref{}
	for _, c := range claims {
		m.tls = m.tls || c.tls
		for _, r := range c.routes {
			if owner, taken := owners[r.key]; taken {
				m.lose(c.from.ref, r.field+".path", "PathConflict", "path %s of %s already belongs to %s: this one is ignored", r.key, m.title(), owner)
				continue
			}
			owners[r.key] = c.from.ref
			m.routes = append(m.routes, m.route(r, c))
		}
	}
	slices.SortFunc(m.routes, func(a, b mergedRoute) int { return a.key.compare(b.key) })
	for i, r := range m.routes {
		_, sibling := owners[pathKey{path: strings.TrimRight(r.key.path, "/")}]
		m.routes[i].slashOnly = sibling && !r.key.exact && strings.HasSuffix(r.key.path, "/")
	}
	if strings.HasPrefix(h.name, "*.") {
		m.fallThrough(p.catchAllHost(), claims)
	}
	return m
}

// catchAllHost returns the merged catch-all host. Every wildcard host needs it, and
// it may have thousands of paths, so it is merged once in a pass.
func (p *pass) catchAllHost() *merged {
	if p.catchAll == nil {
		p.catchAll = p.merge(p.t.hosts[catchAll])
	}
	return p.catchAll
}

// maxFallThrough bounds the routes that every wildcard host repeats of the
// catch-all host: one tenant's paths times another's hosts would fill the
// memory of everybody.
const maxFallThrough = 16

// fallThrough lets a wildcard host end in the catch-all host's routes.
func (m *merged) fallThrough(all *merged, claims []*claim) {
	m.below = all
	if len(all.routes) <= maxFallThrough {
		return
	}
	m.below = &merged{name: catchAll, fallback: all.fallback}
	for _, c := range claims {
		m.conflicts[c.from.ref] = append(m.conflicts[c.from.ref], model.Report{
			Object: c.from.ref, Reason: "FallThroughLimited", Severity: model.Warning,
			Message: fmt.Sprintf("rules without a host have more than %d paths: requests for names with two labels in place of the * of %s go to the default backend instead of them", maxFallThrough, m.name),
		})
	}
}

func (m *merged) route(r route, c *claim) mergedRoute {
	out := mergedRoute{key: r.key, raw: r.raw, from: c.from.ref, target: m.fallback}
	if r.target != nil {
		out.target = *r.target
	}
	return out
}

// chooseFallback decides what takes the paths that no rule takes: the default
// backend of the oldest Ingress that has one, else the global one. On the
// catch-all host, Ingresses that are nothing but a default backend come first.
func (m *merged) chooseFallback(claims []*claim, global target) {
	m.fallback = global
	candidates := slices.DeleteFunc(slices.Clone(claims), func(c *claim) bool { return c.fallback == nil })
	if m.name == catchAll {
		slices.SortStableFunc(candidates, func(a, b *claim) int { return rank(a) - rank(b) })
	}
	for i, c := range candidates {
		if i == 0 {
			m.fallback = *c.fallback
			continue
		}
		m.lose(c.from.ref, "spec.defaultBackend", "DefaultBackendConflict",
			"what no rule takes on %s already belongs to %s: it does not come to this default backend", m.title(), candidates[0].from.ref)
	}
}

// title names the host in a sentence.
func (m *merged) title() string {
	if m.name == catchAll {
		return "all other hosts"
	}
	return "host " + m.name
}

func rank(c *claim) int {
	if c.only {
		return 0
	}
	return 1
}

func (m *merged) lose(loser model.Ref, field, reason, format string, args ...any) {
	m.conflicts[loser] = append(m.conflicts[loser], model.Report{
		Object: loser, Reason: reason, Severity: model.Error, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// virtualHosts encodes the host for the plain table and for the TLS table. They
// are the same unless plain HTTP is redirected.
func (m *merged) virtualHosts() (plain, tls []byte) {
	tls = m.encode(m.allRoutes(false))
	if !m.tls && (m.below == nil || !m.below.tls) {
		return tls, tls
	}
	return m.encode(m.allRoutes(true)), tls
}

func (m *merged) encode(routes []*routev3.Route) []byte {
	encode := func(routes ...*routev3.Route) ([]byte, error) {
		return envoy.EncodeVirtualHost(envoy.VirtualHost(m.name, routes))
	}
	b, err := encode(routes...)
	if err == nil {
		return b
	}
	// One bad route must not take the others with it.
	good := slices.DeleteFunc(slices.Clone(routes), func(r *routev3.Route) bool {
		_, err := encode(r)
		return err != nil
	})
	if b, err = encode(good...); err != nil {
		panic("translator: " + err.Error()) // the name was checked and every route is valid
	}
	return b
}

// allRoutes lists the routes in the order of matching. Requests to a wildcard
// host whose first label is really two fall through to the catch-all host's.
func (m *merged) allRoutes(plain bool) []*routev3.Route {
	routes := m.ownRoutes(plain)
	if m.below == nil {
		return routes
	}
	for _, r := range routes {
		envoy.OneLabel(r.GetMatch(), m.name)
	}
	return append(routes, m.below.ownRoutes(plain)...)
}

func (m *merged) ownRoutes(plain bool) []*routev3.Route {
	redirected := plain && m.tls
	var out []*routev3.Route
	for _, r := range m.routes {
		if redirected && !strings.HasPrefix(r.key.path, acmePath) {
			continue
		}
		name := r.from.Namespace + "/" + r.from.Name
		out = append(out, r.target.route(name, r.key.match(r.slashOnly)))
		if r.raw != "" {
			out = append(out, r.target.route(name, pathKey{r.key.exact, r.raw}.match(r.slashOnly)))
		}
	}
	rest := envoy.MatchPrefix("/")
	switch {
	case redirected:
		out = append(out, envoy.RedirectHTTPS("", rest, m.redirectHost()))
	case m.fallback.status != 404 || m.below != nil: // 404 is what no route means
		out = append(out, m.fallback.route("", rest))
	}
	return out
}

// redirectHost names the host of a redirect, so that a port in the request is
// not carried over. A wildcard host has no such name.
func (m *merged) redirectHost() string {
	if strings.HasPrefix(m.name, "*") {
		return ""
	}
	return m.name
}

func (t target) route(name string, m *routev3.RouteMatch) *routev3.Route {
	if t.cluster != "" {
		return envoy.Forward(name, m, t.cluster)
	}
	return envoy.Respond(name, m, t.status)
}
