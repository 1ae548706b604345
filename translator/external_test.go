package translator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairway/envoy"
	"fairway/translator/model"
)

// Everything that resolves to Envoy's own machine, to the cloud's metadata or
// into Fairway's namespace is refused, in each spelling that the API takes.
func TestExternalNames(t *testing.T) {
	const (
		proxy, own = "means the proxy itself", "points into Fairway's own namespace"
		address    = "is a loopback or link-local address"
		number     = "is neither a host name nor an address"
		noName     = "is not a host name"
	)
	for name, want := range map[string]string{
		"localhost": proxy, "localhost.": proxy, "LOCALHOST": proxy, "foo.localhost": proxy, "a.b.localhost.": proxy,
		"localhost.localdomain": proxy, "localhost4": proxy, "ip6-localhost": proxy, "ip6-loopback": proxy, "localhost6.localdomain6": proxy,
		"localhost.example.org": proxy,
		"127.0.0.1":             address, "127.1.2.3": address, "169.254.169.254": address, "0.0.0.0": address, "224.0.0.1": address,
		"127.1": number, "127.0.1": number, "0x7f000001": number, "0x7F.1": number, "2130706433": number, "0177.0.0.1": number, "0": number, "0x0": number,
		"127.0.0.1.": number, "10.1.2.3.": number, "256.1.1.1": number, "example.1": number,
		"::1": noName, "[::1]": noName, "fe80::1%eth0": noName, "a_b.test": noName, "*.test": noName, "a..b": noName, "a.test:80": noName,
		"a.test/x": noName, "a.test\n": noName, "\xff.test": noName, strings.Repeat("a", 254): noName,
		"":                           "is empty",
		"metadata.google.internal":   "means the cloud's metadata",
		"fairway.fairway-system":     own,
		"fairway.fairway-system.svc": own,
		"fairway.fairway-system.svc.cluster.local":    own,
		"fairway.fairway-system.svc.cluster.local.":   own,
		"FAIRWAY.fairway-system.svc.cluster.local":    own,
		"pod-0.fairway.fairway-system.svc.other.zone": own,
		"10-1-2-3.fairway-system.pod.cluster.local":   own,
		"pod-0.fairway.fairway-system":                own,
		"fairway":                                     own,
		"example.org":                                 "",
		"example.org.":                                "",
		"Example.ORG":                                 "",
		"10.1.2.3":                                    "",
		"mylocalhost.example.org":                     "",
		"localhosting.org":                            "",
		"web.shop.svc.cluster.local":                  "",
		"fairway-system.example.org":                  "",
		"x.fairway-system.example.org":                "",
		"127.0.0.1.example.org":                       "",
	} {
		err := checkName(name, "fairway-system")
		switch {
		case want == "" && err != nil:
			t.Errorf("%q is refused: %v", name, err)
		case want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
	if err := checkName("intranet", ""); err != nil {
		t.Errorf("without a namespace of its own nothing is Fairway's: %v", err)
	}
}

// A Service that turns into an ExternalName, and back, changes its cluster in
// place; its load assignment goes and comes back.
func TestServiceBecomesExternalName(t *testing.T) {
	config := testConfig
	config.ExternalName = true
	w, tr := newWorld(), New(config)
	w.add(t, []byte(oneIngress))
	tr.Apply(w, allDirty(w))
	service := refOf(model.Service, "shop", "web")
	inside := w.services[service]
	outside := inside.DeepCopy()
	outside.Spec.Type, outside.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	assignment := envoy.Name{Type: envoy.Endpoint, Name: "shop/web/80"}

	w.services[service] = outside
	d := tr.Apply(w, dirty(service)).Delta
	if len(d.Upserts) != 1 || d.Upserts[0].Type != envoy.Cluster || len(d.Removes) != 1 || d.Removes[0] != assignment {
		t.Fatalf("got %d upserts, removes %v", len(d.Upserts), d.Removes)
	}
	w.services[service] = inside
	d = tr.Apply(w, dirty(service)).Delta
	if len(d.Upserts) != 2 || len(d.Removes) != 0 || tr.published[assignment] == nil {
		t.Fatalf("got %d upserts, removes %v", len(d.Upserts), d.Removes)
	}
	forbidden := outside.DeepCopy()
	forbidden.Spec.ExternalName = "localhost"
	w.services[service] = forbidden
	result := tr.Apply(w, dirty(service))
	if len(result.Delta.Removes) != 2 || len(result.Verdicts) != 1 || result.Verdicts[0].Reports[0].Reason != "ExternalNameRefused" {
		t.Fatalf("got removes %v, verdicts %v", result.Delta.Removes, result.Verdicts)
	}
}
