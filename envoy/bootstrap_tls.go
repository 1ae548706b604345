package envoy

import (
	"net"
	"path/filepath"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	certificateSecret = "xds-certificate"
	authoritySecret   = "xds-authority"
	certificateFile   = certificateSecret + ".json"
	authorityFile     = authoritySecret + ".json"
)

// xdsTLS presents a client certificate and verifies the control plane. Both
// come from files by way of SDS files, the only form in which Envoy reads them
// again when they change.
func xdsTLS(dir, host string) *corev3.TransportSocket {
	if net.ParseIP(host) != nil {
		host = "" // a server name is never an address
	}
	fromFile := func(name, file string) *tlsv3.SdsSecretConfig {
		return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
				PathConfigSource: &corev3.PathConfigSource{Path: filepath.Join(dir, file)},
			},
		}}
	}
	return transportSocket(&tlsv3.UpstreamTlsContext{
		Sni: host,
		CommonTlsContext: &tlsv3.CommonTlsContext{
			AlpnProtocols:                  []string{"h2"},
			TlsParams:                      &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{fromFile(certificateSecret, certificateFile)},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
				ValidationContextSdsSecretConfig: fromFile(authoritySecret, authorityFile),
			},
		},
	})
}

func xdsCertificate(dir string) *tlsv3.Secret {
	return &tlsv3.Secret{Name: certificateSecret, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: fileSource(dir, "tls.crt"),
		PrivateKey:       fileSource(dir, "tls.key"),
		WatchedDirectory: &corev3.WatchedDirectory{Path: dir},
	}}}
}

// xdsAuthority verifies that the control plane's certificate comes from our
// authority and is for the host that the Envoy connects to.
func xdsAuthority(o BootstrapOptions) *tlsv3.Secret {
	host, _, _ := net.SplitHostPort(o.XDSAddress)
	san := &tlsv3.SubjectAltNameMatcher{
		SanType: tlsv3.SubjectAltNameMatcher_DNS,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: host}},
	}
	if net.ParseIP(host) != nil {
		san.SanType = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	}
	return &tlsv3.Secret{Name: authoritySecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa:                 fileSource(o.XDSTLSDir, "ca.crt"),
		WatchedDirectory:          &corev3.WatchedDirectory{Path: o.XDSTLSDir},
		MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{san},
	}}}
}

func fileSource(dir, name string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: filepath.Join(dir, name)}}
}

// secretFile wraps a Secret as Envoy reads it from a file.
func secretFile(s *tlsv3.Secret) *discoveryv3.DiscoveryResponse {
	return &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{mustAny(s)}}
}
