package envoy

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// validate runs the real Envoy over a bootstrap.
func validate(t *testing.T, b *bootstrapv3.Bootstrap) {
	t.Helper()
	if err := b.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	validateFile(t, file)
}

func validateFile(t *testing.T, file string) {
	t.Helper()
	binary := os.Getenv("ENVOY")
	if binary == "" {
		t.Fatal("ENVOY must name the Envoy binary; `make test` sets it")
	}
	out, err := exec.Command(binary, "--mode", "validate", "-c", file, "--log-level", "error").CombinedOutput()
	if err != nil {
		t.Fatalf("envoy refuses %s: %v\n%s", file, err, out)
	}
}

func static(l []*listenerv3.Listener, c ...*clusterv3.Cluster) *bootstrapv3.Bootstrap {
	b, err := bootstrap(BootstrapOptions{NodeID: "test", XDSAddress: "127.0.0.1:18000", AdminSocket: "admin.sock"})
	if err != nil {
		panic(err)
	}
	b.StaticResources.Listeners = l
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, c...)
	return b
}

func TestEnvoyAcceptsListenersAndClusters(t *testing.T) {
	names := map[string]map[string]string{
		"none":   nil,
		"exact":  {"a.test": "tls/shop/a", "b.test": "tls/shop/b", "c.test": "tls/shop/a"},
		"suffix": {"*.a.test": "tls/shop/a", "*.b.a.test": "tls/shop/b"},
		"both":   {"*.a.test": "tls/shop/a", "a.test": "tls/shop/b"},
	}
	for name, n := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			validate(t, static([]*listenerv3.Listener{HTTPListener(8080), HTTPSListener(8443, n)},
				EDSCluster("shop/web/80", Upstream{}),
				EDSCluster("shop/grpc/80", Upstream{HTTP2: true}),
				EDSCluster("shop/tls/443", Upstream{TLS: true}),
				DNSCluster("shop/ext/443", Upstream{HTTP2: true, TLS: true}, "example.test", 443)))
		})
	}
}

// Routes come by RDS and validation does not fetch them, so the table stands
// inline here.
func TestEnvoyAcceptsRoutes(t *testing.T) {
	table := RouteBase(HTTPName, "80")
	table.VirtualHosts = []*routev3.VirtualHost{
		VirtualHost("a.test", []*routev3.Route{
			Forward("shop/web", MatchExact("/foo"), "shop/web/80"),
			Forward("shop/web", MatchElements("/foo"), "shop/web/80"),
			RedirectHTTPS("shop/web", MatchPrefix("/"), "a.test"),
		}),
		VirtualHost("*.a.test", []*routev3.Route{
			Forward("shop/web", OneLabel(MatchPrefix("/"), "*.a.test"), "shop/web/80"),
			Respond("", MatchPrefix("/"), 404),
		}),
	}
	filter := connectionManager(HTTPName)
	hcm := &hcmv3.HttpConnectionManager{}
	if err := filter.GetTypedConfig().UnmarshalTo(hcm); err != nil {
		t.Fatal(err)
	}
	hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: table}
	l := HTTPListener(8080)
	l.DefaultFilterChain.Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(hcm)}
	validate(t, static([]*listenerv3.Listener{l}, EDSCluster("shop/web/80", Upstream{})))
}

func TestEnvoyAcceptsBootstrap(t *testing.T) {
	for name, o := range map[string]BootstrapOptions{
		"plaintext": {NodeID: "no", XDSAddress: "127.0.0.1:18000", AdminSocket: "admin.sock", StatsAddress: "0.0.0.0:8002"},
		"tls":       {NodeID: "off", XDSAddress: "fairway.fairway-system:18000", XDSTLSDir: "/etc/xds", AdminAddress: "127.0.0.1:9901"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Dir = t.TempDir()
			files, err := Bootstrap(o)
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range files {
				if !json.Valid(b) {
					t.Fatalf("%s is not JSON", name)
				}
				if err := os.WriteFile(filepath.Join(o.Dir, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			validateFile(t, filepath.Join(o.Dir, BootstrapFile))
		})
	}
}

func TestBootstrapErrorsNameTheValue(t *testing.T) {
	ok := BootstrapOptions{NodeID: "n", XDSAddress: "h:1", AdminSocket: "s"}
	for want, change := range map[string]func(*BootstrapOptions){
		"the node id is empty":                                                func(o *BootstrapOptions) { o.NodeID = "" },
		`xds address "h": want HOST:PORT`:                                     func(o *BootstrapOptions) { o.XDSAddress = "h" },
		`admin address "": want HOST:PORT`:                                    func(o *BootstrapOptions) { o.AdminSocket = "" },
		`admin address "localhost:1": "localhost" is not an IP address`:       func(o *BootstrapOptions) { o.AdminSocket, o.AdminAddress = "", "localhost:1" },
		`stats address "localhost:1": "localhost" is not an IP address`:       func(o *BootstrapOptions) { o.StatsAddress = "localhost:1" },
		`stats address "x:99999": want HOST:PORT with a port from 1 to 65535`: func(o *BootstrapOptions) { o.StatsAddress = "x:99999" },
	} {
		o := ok
		change(&o)
		if _, err := Bootstrap(o); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestLoadAssignmentWithoutEndpointsIsExplicit(t *testing.T) {
	r, err := Encode(Endpoint, "a/b/80", LoadAssignment("a/b/80", nil))
	if err != nil || r.Version == "" {
		t.Fatal(r, err)
	}
	full, err := Encode(Endpoint, "a/b/80", LoadAssignment("a/b/80", []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:80")}))
	if err != nil || full.Version == r.Version {
		t.Fatal(full, err)
	}
}
