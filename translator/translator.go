package translator

import (
	"slices"

	"fairway/envoy"
	"fairway/translator/model"
)

// Config is what the whole translation depends on. It does not change while a
// Translator lives.
type Config struct {
	ControllerClass string // spec.controller of the IngressClasses that are ours
	IngressClass    string // value of the legacy kubernetes.io/ingress.class annotation
	WithoutClass    bool   // serve Ingresses that name no class at all

	DisableCatchAll    bool              // refuse Ingresses with a default backend
	DefaultBackend     model.Ref         // Service for what no rule takes, its first port; zero: 404
	DefaultCertificate model.Ref         // Secret for server names without one; zero: the fallback
	Fallback           envoy.Certificate // used where DefaultCertificate is absent or broken

	HTTPPort, HTTPSPort uint32 // what Envoy binds
	ExternalName        bool   // serve Services of type ExternalName
	OwnNamespace        string // where Fairway itself runs: not reachable through an ExternalName
	AllowLoopback       bool   // endpoints on loopback addresses are the operator's own wish
}

// Result is what one Apply changed.
type Result struct {
	Delta    envoy.Delta
	Verdicts []model.Verdict // of the Ingresses whose verdict changed
	// References are the Secrets that the served Ingresses name, sorted; nil
	// when they are the same as after the last Apply.
	References []model.Ref
	// Notes are for the operator: what became wrong with the objects that the
	// configuration names.
	Notes []model.Report
}

// Translator holds the derived state. It is owned by one goroutine.
type Translator struct {
	config Config
	base   bool // the resources that need no Ingress were published

	fragments    map[model.Ref]*fragment
	references   graph
	hosts        map[string]*host
	hostNames    []string                       // keys of hosts that have routes, sorted
	serverNames  map[string]map[model.Ref]grant // server name → Ingress → certificate
	defaults     *fragment                      // the global default backend, as a fragment without claims
	clusters     map[string]*cluster
	byService    map[model.Ref]map[string]*cluster
	certificates map[model.Ref]*certificate
	usedSecrets  map[model.Ref]struct{} // Secrets that some server name gets its certificate from
	verdicts     map[model.Ref]model.Verdict
	followed     []model.Ref
	notes        map[model.Ref]model.Report

	published map[envoy.Name]*envoy.Resource
}

// New returns a Translator that knows nothing yet.
func New(c Config) *Translator {
	return &Translator{
		config:       c,
		fragments:    map[model.Ref]*fragment{},
		references:   newGraph(),
		hosts:        map[string]*host{},
		serverNames:  map[string]map[model.Ref]grant{},
		clusters:     map[string]*cluster{},
		byService:    map[model.Ref]map[string]*cluster{},
		certificates: map[model.Ref]*certificate{},
		verdicts:     map[model.Ref]model.Verdict{},
		notes:        map[model.Ref]model.Report{},
		published:    map[envoy.Name]*envoy.Resource{},
	}
}

// Full translates everything that a Source holds: the oracle of Apply, and what
// the command line and the golden tests use.
func Full(c Config, src model.Source) Result { return New(c).Apply(src, Everything(src)) }

// Everything returns the keys from which a new Translator translates all that a
// Source holds: every Ingress leads to what it depends on.
func Everything(src model.Source) model.Dirty {
	d := model.Dirty{Config: map[model.Ref]struct{}{}}
	for ing := range src.Ingresses() {
		d.Config[model.Ref{Kind: model.Ingress, Namespace: ing.Namespace, Name: ing.Name}] = struct{}{}
	}
	return d
}

// Apply recomputes what depends on the dirty keys and returns what changed.
func (t *Translator) Apply(src model.Source, d model.Dirty) Result {
	p := newPass(t, src)
	if !t.base {
		t.base = true
		p.hosts[catchAll] = struct{}{}
		p.listeners = true
		p.follow = true
		p.rebuildDefaultBackend()
	}
	p.config(d)
	p.rebuildHosts()
	p.rebuildClusters(d)
	p.rebuildTables()
	p.rebuildTLS()
	p.conclude()
	return p.result
}

// publish adds a resource to the result unless it is what everybody has.
func (p *pass) publish(r *envoy.Resource) {
	if old := p.t.published[r.Key()]; old != nil && old.Version == r.Version {
		return
	}
	p.t.published[r.Key()] = r
	p.result.Delta.Upserts = append(p.result.Delta.Upserts, r)
}

// withdraw adds a removal to the result if the resource was ever published.
func (p *pass) withdraw(n envoy.Name) {
	if p.t.published[n] == nil {
		return
	}
	delete(p.t.published, n)
	p.result.Delta.Removes = append(p.result.Delta.Removes, n)
}

// Resources returns all that is published now, sorted by type and name.
func (t *Translator) Resources() []*envoy.Resource {
	out := make([]*envoy.Resource, 0, len(t.published))
	for _, r := range t.published {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *envoy.Resource) int { return a.Key().Compare(b.Key()) })
	return out
}
