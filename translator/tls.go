package translator

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"fairway/envoy"
	"fairway/translator/model"
)

// name moves an Ingress from the server names of its old fragment to those of
// its new one.
func (p *pass) name(old, new *fragment) {
	t := p.t
	if old != nil {
		if old.created.Equal(new.created) && maps.Equal(old.names, new.names) {
			return
		}
		for name := range old.names {
			delete(t.serverNames[name], old.ref)
			if len(t.serverNames[name]) == 0 {
				delete(t.serverNames, name)
			}
		}
		p.listeners = p.listeners || len(old.names) > 0
	}
	for name, g := range new.names {
		if t.serverNames[name] == nil {
			t.serverNames[name] = map[model.Ref]grant{}
		}
		t.serverNames[name][new.ref] = g
	}
	p.listeners = p.listeners || len(new.names) > 0
}

// rebuildTLS publishes the listeners if the server names changed, and the
// Secrets that they need.
func (p *pass) rebuildTLS() {
	t := p.t
	if p.listeners {
		names := p.winners()
		p.publishDefaultCertificate()
		p.publishSecrets(names)
		p.publishListener(envoy.HTTPListener(t.config.HTTPPort))
		chains := map[string]string{}
		for name, ref := range names {
			chains[name] = envoy.SecretName(ref.Namespace, ref.Name)
		}
		p.publishListener(envoy.HTTPSListener(t.config.HTTPSPort, chains))
		return
	}
	for _, ref := range slices.SortedFunc(maps.Keys(p.secrets), model.Ref.Compare) {
		if _, used := t.usedSecrets[ref]; used {
			p.publishSecret(ref)
		}
	}
}

// winners decides which Ingress's certificate a server name gets: of those that
// speak best for the name, the oldest one's.
func (p *pass) winners() map[string]model.Ref {
	out := make(map[string]model.Ref, len(p.t.serverNames))
	for name, grants := range p.t.serverNames {
		var best model.Ref
		for ingress, g := range grants {
			if best == (model.Ref{}) || p.compareGrants(g, grants[best], ingress, best) < 0 {
				best = ingress
			}
		}
		out[name] = grants[best].secret
	}
	return out
}

func (p *pass) compareGrants(a, b grant, of, from model.Ref) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), p.t.fragments[of].compareAge(p.t.fragments[from]))
}

func (p *pass) publishSecrets(names map[string]model.Ref) {
	used := map[model.Ref]struct{}{}
	for _, ref := range names {
		used[ref] = struct{}{}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(used), model.Ref.Compare) {
		p.publishSecret(ref)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(p.t.usedSecrets), model.Ref.Compare) {
		if _, still := used[ref]; !still {
			p.withdraw(envoy.Name{Type: envoy.Secret, Name: envoy.SecretName(ref.Namespace, ref.Name)})
		}
	}
	p.t.usedSecrets = used
}

// publishSecret publishes a certificate that some server name uses. It is not
// usable any more if it changed after the Ingresses were read: they come again.
func (p *pass) publishSecret(ref model.Ref) {
	if c := p.t.certificate(p.src, ref); c.problem == nil {
		p.publish(c.resource)
	}
}

func (p *pass) publishDefaultCertificate() {
	pair := p.t.config.Fallback
	if ref := p.t.config.DefaultCertificate; ref != (model.Ref{}) {
		c := p.t.certificate(p.src, ref)
		if c.problem == nil {
			pair = c.pair
			p.note(ref, nil)
		} else {
			p.note(ref, &problem{c.problem.reason, c.problem.message + ": server names without a certificate get the self-signed one"})
		}
	}
	p.must(envoy.Secret, envoy.DefaultSecretName, envoy.CertificateSecret(envoy.DefaultSecretName, pair))
}

func (p *pass) publishListener(l interface {
	proto.Message
	GetName() string
}) {
	p.must(envoy.Listener, l.GetName(), l)
}

// must publishes a resource that no object can make invalid.
func (p *pass) must(t envoy.Type, name string, m proto.Message) {
	r, err := envoy.Encode(t, name, m)
	if err != nil {
		panic("translator: " + err.Error())
	}
	p.publish(r)
}

// updateReferences tells which Secrets the Ingresses name, if that changed.
func (p *pass) updateReferences() {
	refs := []model.Ref{}
	if r := p.t.config.DefaultCertificate; r != (model.Ref{}) {
		refs = append(refs, r)
	}
	for _, f := range p.t.fragments {
		refs = append(refs, f.secrets...)
	}
	slices.SortFunc(refs, model.Ref.Compare)
	refs = slices.Compact(refs)
	if p.t.followed == nil || !slices.Equal(refs, p.t.followed) {
		p.t.followed = refs
		maps.DeleteFunc(p.t.certificates, func(r model.Ref, _ *certificate) bool {
			_, named := slices.BinarySearchFunc(refs, r, model.Ref.Compare)
			return !named
		})
		p.result.References = refs
	}
}
