package translator

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fairway/envoy"
)

// renderer writes resources as YAML for people, one line per route, cluster,
// load assignment, Secret and server name. Fields that every resource of a type
// has are left out by comparing with one that the builders make of nothing, so
// a field that is new in one case shows up in it.
type renderer struct {
	*testing.T
	bytes.Buffer
	plain map[string]string // the lines of the hosts in the table "http"
}

func render(t *testing.T, resources map[envoy.Name]*envoy.Resource, full bool) []byte {
	t.Helper()
	r := &renderer{T: t, plain: map[string]string{}}
	for _, res := range sorted(resources) {
		m := decode(t, res)
		if full {
			r.full(res, m)
			continue
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			r.line(res.Type, res.Name, without(m, envoy.EDSCluster(m.GetName(), envoy.Upstream{})))
		case *endpointv3.ClusterLoadAssignment:
			r.assignment(m)
		case *tlsv3.Secret:
			if m.GetName() != envoy.DefaultSecretName || !isFallback(m) {
				r.line(res.Type, res.Name, certificateNames(t, m))
			}
		case *routev3.RouteConfiguration:
			r.table(m)
		case *listenerv3.Listener:
			r.listener(m)
		default:
			t.Fatalf("no form for %T", m)
		}
	}
	return r.Bytes()
}

func (r *renderer) full(res *envoy.Resource, m proto.Message) {
	if s, ok := m.(*tlsv3.Secret); ok {
		m = &tlsv3.Secret{Name: s.GetName()} // a new certificate each time
	}
	text, err := envoy.RenderYAML(m)
	if err != nil {
		r.Fatal(err)
	}
	fmt.Fprintf(r, "--- # %s %s, owners %q\n%s", res.Type, res.Name, res.Owners, text)
}

func (r *renderer) line(t envoy.Type, name string, value any) {
	fmt.Fprintf(r, "%s %s: %s\n", t, name, flow(value))
}

func (r *renderer) assignment(m *endpointv3.ClusterLoadAssignment) {
	var out []any
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if a := e.GetEndpoint().GetAddress().GetSocketAddress(); bare(e, a) {
				out = append(out, endpointText(e))
			} else {
				out = append(out, asJSON(r.T, e))
			}
		}
	}
	r.line(envoy.Endpoint, m.GetClusterName(), out)
}

func endpointText(e *endpointv3.LbEndpoint) string {
	a := e.GetEndpoint().GetAddress().GetSocketAddress()
	return net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))
}

// bare reports whether an endpoint is nothing but its address.
func bare(e *endpointv3.LbEndpoint, a *corev3.SocketAddress) bool {
	return proto.Equal(e, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: a.GetAddress(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: a.GetPortValue()},
		}}},
	}}})
}

// table shows the hosts; of the table "https" only those that differ.
func (r *renderer) table(m *routev3.RouteConfiguration) {
	port := map[string]string{envoy.HTTPName: "80", envoy.HTTPSName: "443"}[m.GetName()]
	var hosts bytes.Buffer
	for _, h := range m.GetVirtualHosts() {
		text := r.host(h)
		switch {
		case m.GetName() == envoy.HTTPName:
			r.plain[h.GetName()] = text
			hosts.WriteString(text)
		case r.plain[h.GetName()] != text:
			hosts.WriteString(text)
		}
	}
	m.VirtualHosts = nil
	if rest := without(m, envoy.RouteBase(m.GetName(), port)); len(rest.(map[string]any)) > 0 {
		r.line(envoy.Route, m.GetName(), rest)
	}
	if m.GetName() == envoy.HTTPSName && hosts.Len() == 0 {
		fmt.Fprintf(r, "Route https: the hosts of http\n")
		return
	}
	fmt.Fprintf(r, "Route %s:\n%s", m.GetName(), hosts.Bytes())
}

func (r *renderer) host(h *routev3.VirtualHost) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:", scalar(h.GetName()))
	if rest := without(h, envoy.VirtualHost(h.GetName(), h.GetRoutes())).(map[string]any); len(rest) > 0 {
		fmt.Fprintf(&b, " # %s", flow(rest))
	}
	b.WriteString("\n")
	for _, route := range h.GetRoutes() {
		if a := route.GetRoute(); a.GetTimeout() != nil && a.GetTimeout().AsDuration() == 0 {
			a.Timeout = nil
		}
		fmt.Fprintf(&b, "  - %s\n", flow(asJSON(r.T, route)))
	}
	return b.String()
}

// listener shows the server names of the TLS listener and its chains.
func (r *renderer) listener(m *listenerv3.Listener) {
	names := map[string]string{}
	for _, c := range m.GetFilterChains() {
		names["x."+c.GetName()] = c.GetName()
	}
	base := envoy.HTTPListener(testConfig.HTTPPort)
	if m.GetName() == envoy.HTTPSName {
		base = envoy.HTTPSListener(testConfig.HTTPSPort, names)
	}
	matcher := m.GetFilterChainMatcher()
	m.FilterChainMatcher, base.FilterChainMatcher = nil, nil
	if rest := without(m, base).(map[string]any); len(rest) > 0 {
		r.line(envoy.Listener, m.GetName(), rest)
	}
	if matcher == nil {
		return
	}
	fmt.Fprintf(r, "Listener %s:\n", m.GetName())
	for _, n := range serverNames(matcher) {
		fmt.Fprintf(r, "  %s: %s\n", scalar(n[0]), n[1])
	}
}

// without returns the message as JSON without the fields that are equal in
// another one.
func without(m, other proto.Message) any {
	m = proto.Clone(m)
	a, b := m.ProtoReflect(), other.ProtoReflect()
	a.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if b.Has(f) && v.Equal(b.Get(f)) {
			a.Clear(f)
		}
		return true
	})
	raw, err := protojson.Marshal(m)
	if err != nil {
		panic(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}

func asJSON(t testing.TB, m proto.Message) any {
	t.Helper()
	return without(m, m.ProtoReflect().New().Interface())
}

func isFallback(s *tlsv3.Secret) bool {
	return bytes.Equal(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes(), testConfig.Fallback.Chain)
}

// certificateNames stands for a certificate in the golden files.
func certificateNames(t testing.TB, s *tlsv3.Secret) any {
	t.Helper()
	block, _ := pem.Decode(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"certificate": strings.Join(cert.DNSNames, ", ")}
}

var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/._~][-A-Za-z0-9/._~:]*$`)

// flow writes a JSON value as flow YAML.
func flow(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var out []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, scalar(k)+": "+flow(v[k]))
		}
		return "{" + strings.Join(out, ", ") + "}"
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, flow(e))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case string:
		return scalar(v)
	default:
		return fmt.Sprint(v)
	}
}

func scalar(s string) string {
	if plainScalar.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
