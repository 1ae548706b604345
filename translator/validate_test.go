package translator

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairway/envoy"
)

func decode(t testing.TB, r *envoy.Resource) proto.Message {
	t.Helper()
	m, err := r.Any.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// invalid returns what is wrong with a set of resources: each must satisfy its
// own constraints, and what one names must be there.
func invalid(resources map[envoy.Name]*envoy.Resource) []error {
	var out []error
	named := map[envoy.Name]bool{}
	for key, r := range resources {
		m, err := r.Any.UnmarshalNew()
		if err != nil {
			out = append(out, fmt.Errorf("%v: %w", key, err))
			continue
		}
		if v, ok := m.(interface{ ValidateAll() error }); ok && v.ValidateAll() != nil {
			out = append(out, fmt.Errorf("%v: %w", key, v.ValidateAll()))
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			eds := envoy.Name{Type: envoy.Endpoint, Name: m.GetName()}
			if m.GetType() == clusterv3.Cluster_EDS {
				named[eds] = true
			} else if resources[eds] != nil {
				out = append(out, fmt.Errorf("%v has a load assignment but does not ask for it", key))
			}
		case *endpointv3.ClusterLoadAssignment:
			named[envoy.Name{Type: envoy.Cluster, Name: m.GetClusterName()}] = true
		case *routev3.RouteConfiguration:
			out = append(out, invalidTable(m, named)...)
		case *listenerv3.Listener:
			out = append(out, invalidListener(m, named)...)
		}
	}
	for n := range named {
		if resources[n] == nil {
			out = append(out, fmt.Errorf("%v is named but not published", n))
		}
	}
	for n := range resources {
		if n.Type == envoy.Secret && !named[n] {
			out = append(out, fmt.Errorf("%v is published but no listener names it", n))
		}
	}
	return out
}

func invalidTable(m *routev3.RouteConfiguration, named map[envoy.Name]bool) []error {
	var out []error
	domains := map[string]bool{}
	for _, h := range m.GetVirtualHosts() {
		for _, d := range h.GetDomains() {
			if domains[strings.ToLower(d)] {
				out = append(out, fmt.Errorf("domain %s is twice in %s", d, m.GetName()))
			}
			domains[strings.ToLower(d)] = true
		}
		for _, r := range h.GetRoutes() {
			if c := r.GetRoute().GetCluster(); c != "" {
				named[envoy.Name{Type: envoy.Cluster, Name: c}] = true
			}
		}
	}
	return out
}

func invalidListener(m *listenerv3.Listener, named map[envoy.Name]bool) []error {
	var out []error
	chains := map[string]bool{}
	for _, c := range append(m.GetFilterChains(), m.GetDefaultFilterChain()) {
		chains[c.GetName()] = true
		for _, s := range secretsOf(c) {
			named[envoy.Name{Type: envoy.Secret, Name: s.GetName()}] = true
		}
	}
	for _, n := range serverNames(m.GetFilterChainMatcher()) {
		if !chains[n[1]] {
			out = append(out, fmt.Errorf("server name %s goes to the missing chain %s", n[0], n[1]))
		}
	}
	return out
}

func secretsOf(c *listenerv3.FilterChain) []*tlsv3.SdsSecretConfig {
	context := &tlsv3.DownstreamTlsContext{}
	if c.GetTransportSocket() == nil || c.GetTransportSocket().GetTypedConfig().UnmarshalTo(context) != nil {
		return nil
	}
	return context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()
}

// serverNames returns the server names of a matcher with their chains, in the
// order in which they are tried; exact names sorted.
func serverNames(m *matcherv3.Matcher) [][2]string {
	var out [][2]string
	for name, to := range m.GetMatcherTree().GetExactMatchMap().GetMap() {
		out = append(out, [2]string{name, to.GetAction().GetName()})
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	for _, f := range m.GetMatcherList().GetMatchers() {
		out = append(out, [2]string{"*" + f.GetPredicate().GetSinglePredicate().GetValueMatch().GetSuffix(), f.GetOnMatch().GetAction().GetName()})
	}
	if below := m.GetOnNoMatch().GetMatcher(); below != nil {
		out = append(out, serverNames(below)...)
	}
	return out
}

// validate lets the real Envoy read the resources. It fetches nothing while it
// validates, so they all stand in the bootstrap: the tables in the connection
// managers, the Secrets as static ones, and each load assignment in a cluster
// of its own.
func validate(t *testing.T, resources map[envoy.Name]*envoy.Resource) {
	t.Helper()
	if refusal := refusal(t, resources); refusal != "" {
		t.Errorf("envoy refuses the resources: %s", refusal)
	}
}

// refusal returns what Envoy has against the resources.
func refusal(t *testing.T, resources map[envoy.Name]*envoy.Resource) string {
	t.Helper()
	binary := os.Getenv("ENVOY")
	if binary == "" {
		t.Fatal("ENVOY must name the Envoy binary; `make test` sets it")
	}
	b, err := staticBootstrap(resources)
	if err != nil {
		return err.Error()
	}
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "--mode", "validate", "-c", file, "--log-level", "error").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v\n%s", err, out)
	}
	return ""
}

// The validation sees what only Envoy checks.
func TestValidationRefuses(t *testing.T) {
	a, b := newPair("a.test"), newPair("b.test")
	mismatched := must(envoy.Encode(envoy.Secret, "tls/shop/t", envoy.CertificateSecret("tls/shop/t", envoy.Certificate{Chain: a["tls.crt"], Key: b["tls.key"]})))
	host := must(envoy.EncodeVirtualHost(envoy.VirtualHost("a.test", nil)))
	twice := must(envoy.RouteTable(envoy.RouteBase("http", "80"), [][]byte{host, host}))
	for want, r := range map[string]map[envoy.Name]*envoy.Resource{
		"Failed to load private key": oneCertificate(&certificate{resource: mismatched}),
		"Only unique values for domains are permitted": func() map[envoy.Name]*envoy.Resource {
			out := byName(Full(testConfig, newWorld()).Delta.Upserts)
			out[twice.Key()] = twice
			return out
		}(),
	} {
		if got := refusal(t, r); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func staticBootstrap(resources map[envoy.Name]*envoy.Resource) (*bootstrapv3.Bootstrap, error) {
	files, err := envoy.Bootstrap(envoy.BootstrapOptions{NodeID: "test", XDSAddress: "127.0.0.1:18000", AdminSocket: "admin.sock"})
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(files[envoy.BootstrapFile], b); err != nil {
		return nil, err
	}
	tables := map[string]*routev3.RouteConfiguration{}
	static := b.GetStaticResources()
	for _, r := range sorted(resources) {
		m, err := r.Any.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			static.Clusters = append(static.Clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			static.Clusters = append(static.Clusters, &clusterv3.Cluster{
				Name: "endpoints of " + m.GetClusterName(), LoadAssignment: m, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			})
		case *tlsv3.Secret:
			static.Secrets = append(static.Secrets, m)
		case *routev3.RouteConfiguration:
			tables[m.GetName()] = m
		case *listenerv3.Listener: // sorted behind the tables
			static.Listeners = append(static.Listeners, m)
			for _, c := range append(m.GetFilterChains(), m.GetDefaultFilterChain()) {
				if err := inline(c, tables[m.GetName()]); err != nil {
					return nil, err
				}
			}
		}
	}
	return b, b.ValidateAll()
}

// inline puts the table into the connection manager of a chain, and makes its
// certificate a static one.
func inline(c *listenerv3.FilterChain, table *routev3.RouteConfiguration) error {
	hcm := &hcmv3.HttpConnectionManager{}
	err := repack(c.GetFilters()[0].GetTypedConfig(), hcm, func() {
		hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: table}
	})
	if c.GetTransportSocket() == nil || err != nil {
		return err
	}
	context := &tlsv3.DownstreamTlsContext{}
	return repack(c.GetTransportSocket().GetTypedConfig(), context, func() {
		for _, s := range context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
			s.SdsConfig = nil
		}
	})
}

func repack(packed *anypb.Any, m proto.Message, change func()) error {
	if err := packed.UnmarshalTo(m); err != nil {
		return err
	}
	change()
	return packed.MarshalFrom(m)
}
