package translator

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
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

	sliceless bool // the Service has no EndpointSlice at all, not even an empty one

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
			p.withdrawCluster(c)
			continue
		}
		p.buildCluster(c)
	}
	for _, service := range slices.SortedFunc(maps.Keys(d.Endpoints), model.Ref.Compare) {
		for _, name := range slices.Sorted(maps.Keys(p.t.byService[service])) {
			if _, done := p.clusters[name]; !done {
				p.buildEndpoints(p.t.clusters[name])
			}
		}
	}
}

func (p *pass) buildCluster(c *cluster) { p.build(c, p.clusterResources) }

// buildEndpoints leaves the cluster as it is, unless that is not published.
func (p *pass) buildEndpoints(c *cluster) {
	if c.problem != "" {
		p.buildCluster(c)
		return
	}
	p.build(c, p.assignment)
}

// build publishes resources of a cluster. If Envoy would refuse them, or the
// builder panics, the cluster is withdrawn, so that it harms nobody else, and
// its users are told.
func (p *pass) build(c *cluster, resources func(*cluster, *corev1.Service) ([]*envoy.Resource, error)) {
	problem := ""
	err := attempt(func() error {
		svc := p.src.Service(c.key.service)
		if svc == nil {
			return nil // its users were told and are moved away
		}
		built, err := resources(c, svc)
		for _, r := range built {
			p.publish(r)
		}
		return err
	})
	if err != nil {
		problem = err.Error()
		p.withdrawCluster(c)
	}
	if problem != c.problem {
		c.problem = problem
		maps.Copy(p.touched, c.users)
	}
}

func (p *pass) withdrawCluster(c *cluster) {
	p.withdraw(envoy.Name{Type: envoy.Cluster, Name: c.key.name()})
	p.withdraw(envoy.Name{Type: envoy.Endpoint, Name: c.key.name()})
}

func (p *pass) clusterResources(c *cluster, svc *corev1.Service) ([]*envoy.Resource, error) {
	name, up := c.key.name(), upstreamFor(servicePort(svc, c.key.port))
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		if p.t.config.checkExternalName(svc) != nil {
			return nil, nil // it changed after its users were read: they come again
		}
		p.withdraw(envoy.Name{Type: envoy.Endpoint, Name: name})
		c.sliceless = false
		return c.encode(nil, envoy.Cluster, envoy.DNSCluster(name, up, svc.Spec.ExternalName, uint32(c.key.port)))
	}
	assignment, err := p.assignment(c, svc)
	if len(assignment) == 0 {
		return nil, err // without a load assignment the cluster would not warm
	}
	return c.encode(assignment, envoy.Cluster, envoy.EDSCluster(name, up))
}

func (p *pass) assignment(c *cluster, svc *corev1.Service) ([]*envoy.Resource, error) {
	port := servicePort(svc, c.key.port)
	if port == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, nil
	}
	known := p.src.Slices(c.key.service)
	if c.sliceless != (len(known) == 0) {
		c.sliceless = len(known) == 0
		maps.Copy(p.touched, c.users)
	}
	endpoints := addresses(svc, port, known, p.t.config.AllowLoopback)
	return c.encode(nil, envoy.Endpoint, envoy.LoadAssignment(c.key.name(), endpoints))
}

// encode adds a resource of the cluster to others.
func (c *cluster) encode(others []*envoy.Resource, t envoy.Type, m proto.Message) ([]*envoy.Resource, error) {
	r, err := envoy.Encode(t, c.key.name(), m, c.key.service.String())
	if err != nil {
		return nil, err
	}
	return append(others, r), nil
}

func servicePort(svc *corev1.Service, number int32) *corev1.ServicePort {
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.Port == number && usable(*p) {
			return p
		}
	}
	return nil
}
