package translator

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"fairway/translator/model"
)

// rebuildDefaultBackend resolves the global default backend and, if it changed,
// marks every host: each one ends in it.
func (p *pass) rebuildDefaultBackend() {
	old := p.t.defaults
	f := newFragment(model.Ref{Name: "default backend"})
	if ref := p.t.config.DefaultBackend; ref != (model.Ref{}) {
		if port := firstPort(p.src.Service(ref)); port != 0 {
			f.targets[clusterKey{service: ref, port: port}] = struct{}{}
			p.note(ref, nil)
		} else {
			p.note(ref, &problem{"ServiceNotFound", "the default backend does not exist or has no TCP port: what no rule takes answers 503"})
		}
	}
	p.t.defaults = f
	p.use(old, f)
	if old != nil && maps.Equal(old.targets, f.targets) {
		return
	}
	for name := range p.t.hosts {
		p.hosts[name] = struct{}{}
	}
}

// globalFallback is what takes a path that nothing else takes.
func (p *pass) globalFallback() target {
	for k := range p.t.defaults.targets {
		return target{cluster: k.name()}
	}
	if p.t.config.DefaultBackend != (model.Ref{}) {
		return target{status: 503}
	}
	return target{status: 404}
}

func firstPort(svc *corev1.Service) int32 {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return 0
	}
	for _, sp := range svc.Spec.Ports {
		if usable(sp) {
			return sp.Port
		}
	}
	return 0
}

// note tells the operator about a problem with an object that the configuration
// names, when it comes; nil ends it.
func (p *pass) note(ref model.Ref, what *problem) {
	if what == nil {
		delete(p.t.notes, ref)
		return
	}
	r := model.Report{Object: ref, Reason: what.reason, Severity: model.Warning, Message: what.message}
	if p.t.notes[ref] != r {
		p.t.notes[ref] = r
		p.result.Notes = append(p.result.Notes, r)
	}
}
