package translator

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"fairway/envoy"
	"fairway/translator/model"
)

// host merges what all Ingresses claim on one host.
type host struct {
	name      string
	claims    map[model.Ref]*claim
	plain     []byte // its virtual host in the table "http", encoded
	tls       []byte // the same in "https"
	conflicts map[model.Ref][]model.Report
}

// claim moves an Ingress from the hosts of its old fragment to those of its new
// one.
func (p *pass) claim(old, new *fragment) {
	if old != nil {
		for name := range old.claims {
			delete(p.t.hosts[name].claims, old.ref)
			p.hosts[name] = struct{}{}
		}
	}
	for name, c := range new.claims {
		h := p.t.hosts[name]
		if h == nil {
			h = &host{name: name, claims: map[model.Ref]*claim{}}
			p.t.hosts[name] = h
		}
		h.claims[new.ref] = c
		p.hosts[name] = struct{}{}
	}
}

// rebuildHosts builds the virtual hosts of the touched hosts. The wildcard
// hosts follow the catch-all host, whose routes they end in.
func (p *pass) rebuildHosts() {
	if _, all := p.hosts[catchAll]; all {
		if p.t.hosts[catchAll] == nil {
			p.t.hosts[catchAll] = &host{name: catchAll, claims: map[model.Ref]*claim{}}
		}
		p.buildHost(p.t.hosts[catchAll])
		for name := range p.t.hosts {
			if strings.HasPrefix(name, "*.") {
				p.hosts[name] = struct{}{}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		if name != catchAll {
			p.buildHost(p.t.hosts[name])
		}
	}
}

func (p *pass) buildHost(h *host) {
	if len(h.claims) == 0 && h.name != catchAll {
		delete(p.t.hosts, h.name)
		p.noteConflicts(h, nil)
		p.setHost(h, nil, nil)
		return
	}
	m := p.merge(h)
	p.noteConflicts(h, m.conflicts)
	plain, tls := m.virtualHosts()
	p.setHost(h, plain, tls)
}

// setHost stores the encoded forms and marks the tables that hold them.
func (p *pass) setHost(h *host, plain, tls []byte) {
	if !bytes.Equal(h.plain, plain) {
		h.plain = plain
		p.tables[envoy.HTTPName] = struct{}{}
	}
	if !bytes.Equal(h.tls, tls) {
		h.tls = tls
		p.tables[envoy.HTTPSName] = struct{}{}
	}
	i, found := slices.BinarySearch(p.t.hostNames, h.name)
	switch {
	case plain != nil && !found:
		p.t.hostNames = slices.Insert(p.t.hostNames, i, h.name)
	case plain == nil && found:
		p.t.hostNames = slices.Delete(p.t.hostNames, i, i+1)
	}
}

// noteConflicts replaces the reports that this host caused, and marks the
// Ingresses whose verdict they belong to.
func (p *pass) noteConflicts(h *host, conflicts map[model.Ref][]model.Report) {
	for ref := range h.conflicts {
		p.touched[ref] = struct{}{}
	}
	for ref := range conflicts {
		p.touched[ref] = struct{}{}
	}
	h.conflicts = conflicts
}

// rebuildTables assembles the RouteConfigurations whose hosts changed.
func (p *pass) rebuildTables() {
	for _, table := range []struct {
		scheme, port string
		of           func(*host) []byte
	}{
		{envoy.HTTPName, "80", func(h *host) []byte { return h.plain }},
		{envoy.HTTPSName, "443", func(h *host) []byte { return h.tls }},
	} {
		if _, dirty := p.tables[table.scheme]; !dirty {
			continue
		}
		hosts := make([][]byte, 0, len(p.t.hostNames))
		for _, name := range p.t.hostNames {
			hosts = append(hosts, table.of(p.t.hosts[name]))
		}
		r, err := envoy.RouteTable(envoy.RouteBase(table.scheme, table.port), hosts)
		if err != nil {
			panic("translator: " + err.Error()) // the base is constant: a test builds it
		}
		p.publish(r)
	}
}
