package translator

import (
	"maps"
	"slices"

	"fairway/translator/model"
)

// pass is one Apply: what it has found to be affected so far, and its result.
type pass struct {
	t      *Translator
	src    model.Source
	result Result

	hosts     map[string]struct{}
	clusters  map[string]struct{}
	tables    map[string]struct{}
	touched   map[model.Ref]struct{} // Ingresses whose verdict may have changed
	secrets   map[model.Ref]struct{} // Secrets that were dirty
	listeners bool                   // the server names, or what they point at, changed
	follow    bool                   // some Ingress's list of Secrets may have changed
	catchAll  *merged                // the catch-all host, once it was needed
}

func newPass(t *Translator, src model.Source) *pass {
	return &pass{
		t: t, src: src,
		hosts: map[string]struct{}{}, clusters: map[string]struct{}{}, tables: map[string]struct{}{},
		touched: map[model.Ref]struct{}{}, secrets: map[model.Ref]struct{}{},
	}
}

// config rebuilds the fragments that the config lane affects.
func (p *pass) config(d model.Dirty) {
	ingresses := map[model.Ref]struct{}{}
	for ref := range d.Config {
		if ref.Kind == model.Ingress {
			ingresses[ref] = struct{}{}
		}
		maps.Copy(ingresses, p.t.references.users[ref])
		p.dependents(ref)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(ingresses), model.Ref.Compare) {
		p.rebuildFragment(ref)
	}
}

// dependents marks what depends on an object other than through a fragment.
func (p *pass) dependents(ref model.Ref) {
	switch ref.Kind {
	case model.Service:
		if ref == p.t.config.DefaultBackend {
			p.rebuildDefaultBackend()
		}
	case model.Secret:
		p.secrets[ref] = struct{}{}
		p.listeners = p.listeners || ref == p.t.config.DefaultCertificate
	}
}

func (p *pass) rebuildFragment(ref model.Ref) {
	t := p.t
	f := buildFragment(ref, &t.config, p.src, func(s model.Ref) *certificate { return t.certificate(p.src, s) })
	old := t.fragments[ref]
	if old != nil && f.exists && old.uid != f.uid {
		p.forgetVerdict(ref)
	}
	p.touched[ref] = struct{}{}
	p.follow = p.follow || old != nil && len(old.secrets) > 0 || len(f.secrets) > 0
	t.references.set(ref, f.uses)
	p.claim(old, f)
	p.use(old, f)
	p.name(old, f)
	if f.exists {
		t.fragments[ref] = f
	} else {
		delete(t.fragments, ref)
	}
}

// conclude writes the verdicts of the touched Ingresses, and the list of
// Secrets to follow.
func (p *pass) conclude() {
	for _, ref := range slices.SortedFunc(maps.Keys(p.touched), model.Ref.Compare) {
		v := p.verdict(ref)
		last, known := p.t.verdicts[ref]
		if p.t.fragments[ref] == nil {
			delete(p.t.verdicts, ref)
		} else {
			p.t.verdicts[ref] = v
		}
		if !known && p.t.fragments[ref] == nil || known && last.Equal(v) {
			continue
		}
		p.result.Verdicts = append(p.result.Verdicts, v)
	}
	if p.follow {
		p.updateReferences()
	}
}

// forgetVerdict concludes that an Ingress is gone although its name is not: it
// was deleted and created anew between two passes. The new one has neither the
// status nor the Events of the old one.
func (p *pass) forgetVerdict(ref model.Ref) {
	if _, known := p.t.verdicts[ref]; known {
		delete(p.t.verdicts, ref)
		p.result.Verdicts = append(p.result.Verdicts, model.Verdict{Ingress: ref})
	}
}

func (p *pass) verdict(ref model.Ref) model.Verdict {
	v := model.Verdict{Ingress: ref}
	f := p.t.fragments[ref]
	if f == nil {
		return v
	}
	v.Served, v.Incomplete = f.served, f.missing
	v.Reports = slices.Clone(f.reports)
	for name := range f.claims {
		v.Reports = append(v.Reports, p.t.hosts[name].conflicts[ref]...)
	}
	for k := range f.targets {
		c := p.t.clusters[k.name()]
		v.Incomplete = v.Incomplete || c.sliceless
		if problem := c.problem; problem != "" {
			v.Reports = append(v.Reports, model.Report{Object: ref, Reason: "InternalError", Severity: model.Error,
				Message: "Envoy would refuse what Fairway made of " + k.service.String() + "; please report this: " + problem})
		}
	}
	slices.SortFunc(v.Reports, model.Report.Compare)
	return v
}
