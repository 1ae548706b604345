package envoy

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// Equal content has equal bytes and an equal version, however its maps are
// ordered in memory; other content has another version.
func TestEncodeIsDeterministic(t *testing.T) {
	names := map[string]string{}
	for i := range 50 {
		names[fmt.Sprintf("h%d.test", i)], names[fmt.Sprintf("*.h%d.test", i)] = fmt.Sprint("tls/shop/", i%7), fmt.Sprint("tls/shop/", i%3)
	}
	build := func() []*Resource {
		return []*Resource{
			encode(t, Listener, HTTPSName, HTTPSListener(8443, names)),
			encode(t, Cluster, "a/b/80", EDSCluster("a/b/80", Upstream{HTTP2: true, TLS: true})),
			encode(t, Route, HTTPName, RouteBase(HTTPName, "80")),
		}
	}
	want := build()
	for range 100 {
		for i, r := range build() {
			if !bytes.Equal(r.Any.GetValue(), want[i].Any.GetValue()) || r.Version != want[i].Version {
				t.Fatalf("%s differs", r.Name)
			}
		}
	}
	other := encode(t, Cluster, "a/b/80", EDSCluster("a/b/80", Upstream{TLS: true}))
	if other.Version == want[1].Version {
		t.Error("other content has the same version")
	}
}

func encode(t testing.TB, typ Type, name string, m proto.Message, owners ...string) *Resource {
	t.Helper()
	r, err := Encode(typ, name, m, owners...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEncode(t *testing.T) {
	r := encode(t, Endpoint, "a/b/80", LoadAssignment("a/b/80", []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}), "Service a/b")
	if r.Any.GetTypeUrl() != Endpoint.URL() || r.Key() != (Name{Endpoint, "a/b/80"}) || len(r.Owners) != 1 || r.Owners[0] != "Service a/b" {
		t.Errorf("got %v", r)
	}
	if len(r.Version) != 16 || r.Version != Version(r.Any.GetValue()) {
		t.Errorf("got version %q", r.Version)
	}
}

func TestEncodeRefusesWhatEnvoyWould(t *testing.T) {
	for want, m := range map[string]proto.Message{
		"Cluster x: invalid Cluster.Name: value length must be at least 1 runes": &clusterv3.Cluster{},
		"Cluster x: encode: string field contains invalid UTF-8":                 &clusterv3.Cluster{Name: "\xff"},
	} {
		if _, err := Encode(Cluster, "x", m); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, m := range []*routev3.RouteMatch{MatchElements("/"), MatchElements("/foo/"), MatchElements("/a?b"), MatchElements("/a#b")} {
		if _, err := EncodeVirtualHost(VirtualHost("a.test", []*routev3.Route{Respond("", m, 404)})); err == nil {
			t.Errorf("%v is taken", m)
		}
	}
	if _, err := EncodeVirtualHost(VirtualHost("", nil)); err == nil {
		t.Error("a host without a name is taken")
	}
}

// A table put together from encoded hosts is the table that holds them.
func TestRouteTableIsARouteConfiguration(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		base := RouteBase(HTTPName, "80")
		want := proto.Clone(base).(*routev3.RouteConfiguration)
		var hosts [][]byte
		for i := range rapid.IntRange(0, 4).Draw(r, "hosts") {
			h := VirtualHost(fmt.Sprintf("h%d.test", i), nil)
			for range rapid.IntRange(0, 40).Draw(r, "routes") {
				h.Routes = append(h.Routes, Forward("shop/web", MatchPrefix("/"+strings.Repeat("x", rapid.IntRange(0, 200).Draw(r, "length"))), "shop/web/80"))
			}
			b, err := EncodeVirtualHost(h)
			if err != nil {
				r.Fatal(err)
			}
			hosts, want.VirtualHosts = append(hosts, b), append(want.VirtualHosts, h)
		}
		table, err := RouteTable(base, hosts)
		if err != nil {
			r.Fatal(err)
		}
		got := &routev3.RouteConfiguration{}
		if err := table.Any.UnmarshalTo(got); err != nil {
			r.Fatal(err)
		}
		if !proto.Equal(got, want) {
			r.Fatalf("got %v", got)
		}
		if table.Version != Version(table.Any.GetValue()) || table.Key() != (Name{Route, HTTPName}) || cap(table.Any.GetValue()) != len(table.Any.GetValue()) {
			r.Fatalf("got %s %v", table.Version, table.Key())
		}
	})
}

const privateKey = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----\n"

// A person sees which certificate a Secret holds, and nothing of its key.
func TestRedact(t *testing.T) {
	inline := func(b string) *corev3.DataSource { return inlineBytes([]byte(b)) }
	for name, c := range map[string]struct {
		secret *tlsv3.Secret
		shows  string
	}{
		"certificate": {CertificateSecret("tls/shop/t", Certificate{Chain: []byte("the chain"), Key: []byte(privateKey)}), "the chain"},
		"ticket keys": {&tlsv3.Secret{Name: "tls/shop/t", Type: &tlsv3.Secret_SessionTicketKeys{SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{inline(privateKey)}}}}, ""},
		"generic":     {&tlsv3.Secret{Name: "tls/shop/t", Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: inline(privateKey)}}}, ""},
		"more fields": {&tlsv3.Secret{Name: "tls/shop/t", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline("the chain"), PrivateKey: inline(privateKey), Pkcs12: inline(privateKey), Password: inline(privateKey)}}}, "the chain"},
	} {
		t.Run(name, func(t *testing.T) {
			r := encode(t, Secret, "tls/shop/t", c.secret, "Secret shop/t")
			before := bytes.Clone(r.Any.GetValue())
			shown := Redact(r)
			text := everyForm(t, shown)
			for _, key := range []string{"PRIVATE", privateKey, "MIGHAgEAMBMG", base64.StdEncoding.EncodeToString([]byte(privateKey))[:40]} {
				if strings.Contains(text, key) {
					t.Errorf("%q is shown", key)
				}
			}
			if c.shows != "" && !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(c.shows))) {
				t.Errorf("the certificate is not shown: %s", text)
			}
			if shown.Version != r.Version || shown.Key() != r.Key() || shown.Owners[0] != "Secret shop/t" {
				t.Errorf("got %v", shown)
			}
			if !bytes.Equal(before, r.Any.GetValue()) {
				t.Error("the resource itself is changed")
			}
		})
	}
}

// everyForm returns a resource as bytes and as JSON, which writes bytes in
// base64.
func everyForm(t *testing.T, r *Resource) string {
	t.Helper()
	m, err := r.Any.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if m.(*tlsv3.Secret).GetName() != r.Name {
		t.Errorf("the name is %q", m.(*tlsv3.Secret).GetName())
	}
	return string(r.Any.GetValue()) + protojson.Format(m) + fmt.Sprintf("%v %+v", r, r.Any)
}

// What cannot be read as a Secret may hold anything, so nothing of it is shown.
func TestRedactShowsNothingOfWhatItCannotRead(t *testing.T) {
	r := &Resource{Type: Secret, Name: "tls/shop/t", Version: "v", Any: &anypb.Any{TypeUrl: Secret.URL(), Value: []byte(privateKey)}}
	want := encode(t, Secret, "tls/shop/t", &tlsv3.Secret{Name: "tls/shop/t"})
	if got := Redact(r); !proto.Equal(got.Any, want.Any) {
		t.Errorf("got %v", got.Any)
	}
}

func TestRedactLeavesTheRest(t *testing.T) {
	r := encode(t, Cluster, "a/b/80", EDSCluster("a/b/80", Upstream{}))
	if Redact(r) != r {
		t.Error("a cluster is changed")
	}
}

func TestCertificatePrintsNothing(t *testing.T) {
	c := Certificate{Chain: []byte("chain"), Key: []byte(privateKey)}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, &c, struct{ C Certificate }{c}, []Certificate{c}} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, "PRIVATE") || strings.Contains(text, "2d2d2d2d") || strings.Contains(text, "45 45 45") {
				t.Errorf("%s prints %s", format, text)
			}
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "certificate", c, "all", []Certificate{c})
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "certificate", c, "all", []Certificate{c})
	if text := log.String(); strings.Contains(text, "PRIVATE") || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(privateKey))) || strings.Contains(text, "45 45 45") {
		t.Errorf("a log shows %s", text)
	}
}
