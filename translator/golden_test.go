package translator

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"fairway/envoy"
	"fairway/translator/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testConfig = Config{
	ControllerClass: "fairway.sh/ingress-controller", IngressClass: "fairway", WithoutClass: true,
	HTTPPort: 8080, HTTPSPort: 8443,
	Fallback: envoy.Certificate{Chain: []byte("fallback chain"), Key: []byte("fallback key")},
}

// Each file of testdata is one case: in.yaml is translated; out.yaml holds the
// resources and reports.txt what the owners are told. What is the same in every
// case (listeners, the base of the route tables, the retry policy of virtual
// hosts, the default certificate) stands in base.txtar alone.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w, config := newWorld(), testConfig
	in := section(archive, "in.yaml")
	w.add(t, in)
	if c := section(archive, "config.yaml"); c != nil {
		if err := yaml.UnmarshalStrict(c, &config); err != nil {
			t.Fatal(err)
		}
	}
	result := Full(config, w)
	out := renderResources(t, result.Delta.Upserts, filepath.Base(file) == "base.txtar")
	reports := renderReports(result.Verdicts)
	if *update {
		setSection(archive, "out.yaml", out)
		setSection(archive, "reports.txt", reports)
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(section(archive, "out.yaml")), string(out)); d != "" {
		t.Errorf("resources differ (-want +got); `make golden` rewrites them:\n%s", d)
	}
	if d := cmp.Diff(string(section(archive, "reports.txt")), string(reports)); d != "" {
		t.Errorf("reports differ (-want +got):\n%s", d)
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func setSection(a *txtar.Archive, name string, data []byte) {
	for i, f := range a.Files {
		if f.Name == name {
			a.Files[i].Data = data
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: data})
}

func renderReports(verdicts []model.Verdict) []byte {
	var b bytes.Buffer
	for _, v := range verdicts {
		if !v.Served {
			fmt.Fprintf(&b, "%s is not served\n", v.Ingress)
		}
		for _, r := range v.Reports {
			fmt.Fprintf(&b, "%s %s %s %s: %s\n", r.Severity, r.Object, r.Reason, r.Field, r.Message)
		}
	}
	return b.Bytes()
}

func renderResources(t *testing.T, resources []*envoy.Resource, all bool) []byte {
	t.Helper()
	var b bytes.Buffer
	rs := New(testConfig)
	for _, r := range resources {
		rs.published[r.Key()] = r
	}
	for _, r := range rs.Resources() {
		m := decode(t, r)
		if !all && !shorten(m) {
			continue
		}
		text, err := envoy.RenderYAML(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "--- # %s %s\n%s", r.Type, r.Name, text)
	}
	return b.Bytes()
}

func decode(t *testing.T, r *envoy.Resource) proto.Message {
	t.Helper()
	m, err := envoy.Redact(r).Any.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("%s %s: %v", r.Type, r.Name, err)
		}
	}
	return m
}

// shorten removes what every case has; false: nothing is left.
func shorten(m proto.Message) bool {
	switch m := m.(type) {
	case *routev3.RouteConfiguration:
		hosts := m.GetVirtualHosts()
		proto.Reset(m)
		m.VirtualHosts = hosts
		for _, h := range hosts {
			h.RetryPolicy = nil
		}
	case *clusterv3.Cluster:
		for _, same := range []protoreflect.Name{"alt_stat_name", "circuit_breakers", "common_lb_config", "connect_timeout", "per_connection_buffer_limit_bytes", "ignore_health_on_host_removal"} {
			m.ProtoReflect().Clear(m.ProtoReflect().Descriptor().Fields().ByName(same))
		}
	case *tlsv3.Secret:
		return m.GetName() != envoy.DefaultSecretName
	case *listenerv3.Listener:
		if m.GetName() == envoy.HTTPName {
			return false
		}
		m.DefaultFilterChain, m.ListenerFilters, m.Address = nil, nil, nil
		for _, c := range m.GetFilterChains() {
			c.Filters, c.TransportSocket, c.TransportSocketConnectTimeout = nil, nil, nil
		}
	}
	return true
}
