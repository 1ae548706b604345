package e2e

import (
	"testing"

	"fairway/test/rig"
)

// Which virtual host a Host header takes, and what of it reaches the backend:
// all of it but a final dot (A08, A09). The same holds for :authority.
func TestHostMatching(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "hosts")
	for _, s := range []string{"exact", "wild", "deep"} {
		lab.kube.ApplyObjects(t, rig.Service("hosts", s), rig.SliceOf("hosts", s, rig.StartBackends(t, s, 1)...))
	}
	lab.kube.Apply(t, ingress("hosts", "web", "a.hosts.test/ exact:80", "*.hosts.test/ wild:80", "*.deep.hosts.test/ deep:80"))
	client(t).Expect(t, wait, "http://x.deep.hosts.test/", 200, "deep")
	for _, c := range []struct{ host, service, received string }{
		{"a.hosts.test", "exact", "a.hosts.test"},
		{"A.Hosts.TEST", "exact", "A.Hosts.TEST"},
		{"a.hosts.test:30847", "exact", "a.hosts.test:30847"},
		{"A.HOSTS.test:80", "exact", "A.HOSTS.test:80"},
		{"a.hosts.test.", "exact", "a.hosts.test"},
		{"a.hosts.test.:8080", "exact", "a.hosts.test:8080"},
		{"b.hosts.test", "wild", "b.hosts.test"},
		{"B.Hosts.Test:8080", "wild", "B.Hosts.Test:8080"},
		{"b.hosts.test.", "wild", "b.hosts.test"},
		{"deep.hosts.test", "wild", "deep.hosts.test"},
		{"x.deep.hosts.test", "deep", "x.deep.hosts.test"},
		{"x-1.deep.hosts.test", "deep", "x-1.deep.hosts.test"},
		// A wildcard takes exactly one label.
		{"x.y.hosts.test", "", ""},
		{"x.a.hosts.test", "", ""},
		{"x.y.deep.hosts.test", "", ""},
		{"hosts.test", "", ""},
		{".hosts.test", "", ""},
		{"hosts.test.evil.test", "", ""},
		{"xhosts.test", "", ""},
	} {
		t.Run(c.host, func(t *testing.T) {
			replies := map[string]*rig.Reply{"HTTP/1.1": rawGet(t, c.host, "/")}
			h2, err := rawH2(t, h2Get(c.host, "/"), nil)
			if err != nil {
				t.Fatal(err)
			}
			replies["h2"] = h2
			for proto, reply := range replies {
				if c.service == "" {
					if err := reply.Check(404, ""); err != nil {
						t.Errorf("%s: %v", proto, err)
					}
				} else if err := reply.Check(200, c.service); err != nil {
					t.Errorf("%s: %v", proto, err)
				} else if reply.Echo.Host != c.received {
					t.Errorf("%s: the backend got %q, want %q", proto, reply.Echo.Host, c.received)
				}
			}
		})
	}
}

// One host in two rules of an Ingress, and in a second Ingress, is one host
// with all paths (A03).
func TestOneHostInSeveralRules(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "several")
	for _, s := range []string{"s1", "s2", "s3"} {
		lab.kube.ApplyObjects(t, rig.Service("several", s), rig.SliceOf("several", s, rig.StartBackends(t, s, 1)...))
	}
	lab.kube.Apply(t, ingress("several", "one", "several.test/s1 s1:80", "several.test/s2 s2:80"))
	lab.kube.Apply(t, ingress("several", "two", "several.test/s3 s3:80"))
	for _, s := range []string{"s1", "s2", "s3"} {
		client(t).Expect(t, wait, "http://several.test/"+s, 200, s)
	}
	site(t, "several-later", "several-later.test", 1)
	if n := lab.envoy.Stat(t, "http.http.rds.http.update_rejected"); n != 0 {
		t.Errorf("Envoy refused %d route tables", n)
	}
}
