package translator

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairway/envoy"
	"fairway/translator/model"
)

// clusterKey is what a cluster stands for: one port of a Service.
type clusterKey struct {
	service model.Ref
	port    int32
}

func (k clusterKey) name() string {
	return envoy.ClusterName(k.service.Namespace, k.service.Name, k.port)
}

// cluster is a clusterKey in use.
type cluster struct {
	key   clusterKey
	users map[model.Ref]struct{} // Ingresses

	problem string // why Envoy would refuse it; empty as a rule
}

// use moves an Ingress from the clusters of its old fragment to those of its
// new one.
func (p *pass) use(old, new *fragment) {
	for k := range new.targets {
		c := p.t.clusters[k.name()]
		if c == nil {
			c = &cluster{key: k, users: map[model.Ref]struct{}{}}
			p.t.addCluster(c)
		}
		c.users[new.ref] = struct{}{}
		p.clusters[k.name()] = struct{}{}
	}
	if old == nil {
		return
	}
	for k := range old.targets {
		if _, kept := new.targets[k]; kept {
			continue
		}
		delete(p.t.clusters[k.name()].users, old.ref)
		p.clusters[k.name()] = struct{}{}
	}
}

func (t *Translator) addCluster(c *cluster) {
	t.clusters[c.key.name()] = c
	if t.byService[c.key.service] == nil {
		t.byService[c.key.service] = map[string]*cluster{}
	}
	t.byService[c.key.service][c.key.name()] = c
}

func (t *Translator) removeCluster(c *cluster) {
	delete(t.clusters, c.key.name())
	delete(t.byService[c.key.service], c.key.name())
	if len(t.byService[c.key.service]) == 0 {
		delete(t.byService, c.key.service)
	}
}

// rebuildClusters brings the touched clusters up to date, and the load
// assignments of the Services whose endpoints changed.
func (p *pass) rebuildClusters(d model.Dirty) {
	for _, name := range slices.Sorted(maps.Keys(p.clusters)) {
		c := p.t.clusters[name]
		if c == nil {
			continue
		}
		if len(c.users) == 0 {
			p.t.removeCluster(c)
			p.withdraw(envoy.Name{Type: envoy.Cluster, Name: name})
			p.withdraw(envoy.Name{Type: envoy.Endpoint, Name: name})
			continue
		}
		p.buildCluster(c)
	}
	for _, service := range slices.SortedFunc(maps.Keys(d.Endpoints), model.Ref.Compare) {
		svc := p.src.Service(service)
		for _, name := range slices.Sorted(maps.Keys(p.t.byService[service])) {
			if _, done := p.clusters[name]; !done && svc != nil {
				p.buildAssignment(p.t.clusters[name], svc)
			}
		}
	}
}

func (p *pass) buildCluster(c *cluster) {
	svc := p.src.Service(c.key.service)
	if svc == nil {
		return // its users were told and are moved away in this same pass
	}
	name, port := c.key.name(), servicePort(svc, c.key.port)
	c.problem = ""
	up := upstreamFor(port)
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		p.encode(c, envoy.Cluster, envoy.DNSCluster(name, up, svc.Spec.ExternalName, uint32(c.key.port)))
		p.withdraw(envoy.Name{Type: envoy.Endpoint, Name: name})
		return
	}
	p.encode(c, envoy.Cluster, envoy.EDSCluster(name, up))
	p.buildAssignment(c, svc)
}

func (p *pass) buildAssignment(c *cluster, svc *corev1.Service) {
	port := servicePort(svc, c.key.port)
	if port == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	name := c.key.name()
	endpoints := addresses(svc, port, p.src.Slices(c.key.service), p.t.config.AllowLoopback)
	p.encode(c, envoy.Endpoint, envoy.LoadAssignment(name, endpoints))
}

func servicePort(svc *corev1.Service, number int32) *corev1.ServicePort {
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.Port == number && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return p
		}
	}
	return nil
}
