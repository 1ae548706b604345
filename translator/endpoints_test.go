package translator

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairway/envoy"
	"fairway/translator/model"
)

// A slice in short: "10.245.0.1 r, 10.245.0.2 n | http 8080, admin 9000". The
// letters are r ready, n not ready, t not ready but serving while it
// terminates, x terminating without serving, - no conditions at all. A port
// "- 8080" has no name, "http -" no number, "http 8080 UDP" another protocol.
func parseSlice(t *testing.T, text string) *discoveryv1.EndpointSlice {
	t.Helper()
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	endpoints, ports, ok := strings.Cut(text, "|")
	if !ok {
		t.Fatalf("no ports in %q", text)
	}
	for _, e := range split(endpoints) {
		f := strings.Fields(e)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: strings.Split(f[0], "+"), Conditions: conditions(f[1])})
		if strings.Contains(f[0], ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
	}
	for _, p := range split(ports) {
		f := strings.Fields(p)
		port := discoveryv1.EndpointPort{}
		if f[0] != "-" {
			port.Name = &f[0]
		}
		if f[1] != "-" {
			var n int32
			if _, err := fmt.Sscan(f[1], &n); err != nil {
				t.Fatal(err)
			}
			port.Port = &n
		}
		if len(f) > 2 {
			port.Protocol = new(corev1.Protocol(f[2]))
		}
		s.Ports = append(s.Ports, port)
	}
	return s
}

func split(list string) []string {
	if strings.TrimSpace(list) == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func conditions(state string) discoveryv1.EndpointConditions {
	c := discoveryv1.EndpointConditions{}
	switch state {
	case "r":
		c.Ready = new(true)
	case "n":
		c.Ready, c.Serving, c.Terminating = new(false), new(false), new(false)
	case "t":
		c.Ready, c.Serving, c.Terminating = new(false), new(true), new(true)
	case "t-": // serving is unknown, which means true
		c.Ready, c.Terminating = new(false), new(true)
	case "n-": // terminating is unknown, which means false
		c.Ready, c.Serving = new(false), new(true)
	case "x":
		c.Ready, c.Serving, c.Terminating = new(false), new(false), new(true)
	}
	return c
}

func TestAddresses(t *testing.T) {
	const one = "10.245.0.1:8080"
	for _, c := range []struct {
		name   string
		port   string // of the Service; default http
		slices []string
		want   string
	}{
		{"no slice", "http", nil, ""},
		{"no endpoint", "http", []string{"| http 8080"}, ""},
		{"ready", "http", []string{"10.245.0.1 r | http 8080"}, one},
		{"unknown readiness means ready", "http", []string{"10.245.0.1 - | http 8080"}, one},
		{"not ready", "http", []string{"10.245.0.1 r, 10.245.0.2 n | http 8080"}, one},
		{"sorted by address, not by text", "http", []string{"10.245.0.10 r, 10.245.0.9 r | http 8080"}, "10.245.0.9:8080 10.245.0.10:8080"},
		{"only the first address counts", "http", []string{"10.245.0.1+10.245.0.2 r | http 8080"}, one},
		{"slices merge", "http", []string{"10.245.0.1 r | http 8080", "10.245.0.2 r | http 8080"}, one + " 10.245.0.2:8080"},
		{"an address in two slices counts once", "http", []string{"10.245.0.1 r, 10.245.0.2 r | http 8080", "10.245.0.2 r, 10.245.0.3 r | http 8080"}, one + " 10.245.0.2:8080 10.245.0.3:8080"},
		{"ready in one slice is ready", "http", []string{"10.245.0.1 r | http 8080", "10.245.0.1 n | http 8080"}, one},
		{"ready before terminating", "http", []string{"10.245.0.1 r, 10.245.0.2 t | http 8080"}, one},
		{"terminating where none is ready", "http", []string{"10.245.0.1 t, 10.245.0.2 n, 10.245.0.3 x | http 8080"}, one},
		{"terminating with unknown serving", "http", []string{"10.245.0.1 t- | http 8080"}, one},
		{"serving with unknown terminating", "http", []string{"10.245.0.1 n- | http 8080"}, ""},
		{"terminating in another slice", "http", []string{"10.245.0.1 n | http 8080", "10.245.0.2 t | http 8080"}, "10.245.0.2:8080"},
		{"terminating does not fall back over slices of other ports", "http", []string{"10.245.0.1 r | admin 9000", "10.245.0.2 t | http 8080"}, "10.245.0.2:8080"},
		{"the port by its name", "http", []string{"10.245.0.1 r | admin 9000, http 8080"}, one},
		{"another number in another slice", "http", []string{"10.245.0.1 r | http 8080", "10.245.0.2 r | http 9090"}, one + " 10.245.0.2:9090"},
		{"the same pod without the port", "http", []string{"10.245.0.1 r | admin 9000", "10.245.0.1 r | http 8080, admin 9000"}, one},
		{"no such port", "http", []string{"10.245.0.1 r | admin 9000"}, ""},
		{"a port without number", "http", []string{"10.245.0.1 r | http -"}, ""},
		{"a port 0", "http", []string{"10.245.0.1 r | http 0"}, ""},
		{"a port beyond all", "http", []string{"10.245.0.1 r | http 65536"}, ""},
		{"a negative port", "http", []string{"10.245.0.1 r | http -1"}, ""},
		{"UDP of the same name", "http", []string{"10.245.0.1 r | http 53 UDP, http 8080 TCP"}, one},
		{"a Service port without name", "", []string{"10.245.0.1 r | - 8080"}, one},
		{"a Service port without name takes no named one", "", []string{"10.245.0.1 r | http 8080"}, ""},
		{"a named Service port takes no nameless one", "http", []string{"10.245.0.1 r | - 8080"}, ""},
		{"IPv6", "http", []string{"fd00::1 r, 2001:db8::1 r | http 8080"}, "[2001:db8::1]:8080 [fd00::1]:8080"},
		{"IPv6 in two spellings", "http", []string{"fd00:0::1 r | http 8080", "fd00::1 r | http 8080"}, "[fd00::1]:8080"},
		{"IPv4 in IPv6", "http", []string{"::ffff:10.245.0.1 r | http 8080", "10.245.0.1 r | http 8080"}, one},
		{"addresses that lead elsewhere", "http", []string{"127.0.0.1 r, 169.254.169.254 r, 0.0.0.0 r, 224.0.0.1 r, 10.245.0.1 r | http 8080",
			"::1 r, fe80::1 r, fe80::1%eth0 r, :: r, ff02::1 r, ::ffff:127.0.0.1 r, ::ffff:169.254.169.254 r | http 8080"}, one},
		{"what is no address", "http", []string{"pod.example.org r, 10.245.0.1 r, 10.245.0 r, 010.245.0.1 r | http 8080"}, one},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*discoveryv1.EndpointSlice
			for _, s := range c.slices {
				all = append(all, parseSlice(t, s))
			}
			port := &corev1.ServicePort{Name: c.port, Port: 80}
			if got := addressText(addresses(&corev1.Service{}, port, all, false)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			if got := addressText(addresses(&corev1.Service{}, port, all, false)); got != c.want {
				t.Errorf("in another order: got %q, want %q", got, c.want)
			}
		})
	}
}

func addressText(as []netip.AddrPort) string {
	var out []string
	for _, a := range as {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// A Service of one address family does not get the other one's endpoints;
// slices of host names are nobody's.
func TestAddressFamilies(t *testing.T) {
	all := []*discoveryv1.EndpointSlice{parseSlice(t, "10.245.0.1 r | http 80"), parseSlice(t, "fd00::1 r | http 80"), parseSlice(t, "10.245.0.7 r | http 80")}
	all[2].AddressType = discoveryv1.AddressTypeFQDN
	for want, families := range map[string][]corev1.IPFamily{
		"10.245.0.1:80":              {corev1.IPv4Protocol},
		"[fd00::1]:80":               {corev1.IPv6Protocol},
		"10.245.0.1:80 [fd00::1]:80": {corev1.IPv6Protocol, corev1.IPv4Protocol},
	} {
		svc := &corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: families}}
		if got := addressText(addresses(svc, &corev1.ServicePort{Name: "http"}, all, false)); got != want {
			t.Errorf("%v: got %q, want %q", families, got, want)
		}
	}
}

// The owner of a folder of manifests may name loopback addresses, and no
// others that lead elsewhere.
func TestLoopbackIsAllowedOnRequest(t *testing.T) {
	s := parseSlice(t, "127.0.0.1 r, ::1 r, ::ffff:127.0.0.2 r, 169.254.169.254 r, 0.0.0.0 r | http 80")
	got := addressText(addresses(&corev1.Service{}, &corev1.ServicePort{Name: "http"}, []*discoveryv1.EndpointSlice{s}, true))
	if want := "127.0.0.1:80 127.0.0.2:80 [::1]:80"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The endpoint lane alone moves endpoints: step by step through what users
// reported of other controllers, one load assignment each, nothing else.
func TestEndpointLane(t *testing.T) {
	w := newWorld()
	w.add(t, []byte(oneIngress))
	tr := New(testConfig)
	tr.Apply(w, allDirty(w))
	service, ingress := refOf(model.Service, "shop", "web"), refOf(model.Ingress, "shop", "web")
	if !tr.verdicts[ingress].Incomplete {
		t.Error("a Service without any slice is complete")
	}
	for _, step := range []struct {
		name   string
		slices map[string]string
		want   string
	}{
		{"two slices", map[string]string{"a": "10.245.0.1 r | http 8080", "b": "10.245.0.2 r | http 8080"}, "10.245.0.1:8080 10.245.0.2:8080"},
		{"readiness alone changes", map[string]string{"a": "10.245.0.1 r | http 8080", "b": "10.245.0.2 n | http 8080"}, "10.245.0.1:8080"},
		{"and back", map[string]string{"a": "10.245.0.1 r | http 8080", "b": "10.245.0.2 r | http 8080"}, "10.245.0.1:8080 10.245.0.2:8080"},
		{"one slice is deleted", map[string]string{"a": "10.245.0.1 r | http 8080"}, "10.245.0.1:8080"},
		{"scaled to none", map[string]string{"a": "| http 8080"}, ""},
		{"back", map[string]string{"a": "10.245.0.3 r | http 8080"}, "10.245.0.3:8080"},
		{"the last slice is deleted", nil, ""},
	} {
		clear(w.slices)
		for name, text := range step.slices {
			s := parseSlice(t, text)
			s.Namespace, s.Name, s.Labels = service.Namespace, name, map[string]string{discoveryv1.LabelServiceName: service.Name}
			w.slices[name] = s
		}
		d := newDirty()
		d.Endpoints[service] = struct{}{}
		result := tr.Apply(w, d)
		if len(result.Delta.Upserts) != 1 || len(result.Delta.Removes) != 0 || result.References != nil {
			t.Fatalf("%s: got %d upserts, %d removes", step.name, len(result.Delta.Upserts), len(result.Delta.Removes))
		}
		// Whether the Service has a slice at all is part of the verdict.
		incomplete := len(step.slices) == 0
		if v := result.Verdicts; incomplete != (tr.verdicts[ingress].Incomplete) || len(v) > 1 || len(v) == 1 && v[0].Incomplete != incomplete {
			t.Errorf("%s: verdicts %v", step.name, v)
		}
		if got := strings.Join(endpointsOf(t, result.Delta.Upserts[0]), " "); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		if again := tr.Apply(w, d); !again.Delta.Empty() {
			t.Errorf("%s: sent again", step.name)
		}
	}
	if tr.published[envoy.Name{Type: envoy.Cluster, Name: "shop/web/80"}] == nil {
		t.Error("the cluster is gone")
	}
}
