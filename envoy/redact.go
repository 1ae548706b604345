package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

const redacted = "[redacted]"

// Redact returns the resource as people may see it: of a Secret, certificates
// and authorities, but nothing else. Every other resource is returned as it is.
func Redact(r *Resource) *Resource {
	if r.Type != Secret {
		return r
	}
	shown := &tlsv3.Secret{Name: r.Name}
	s := &tlsv3.Secret{}
	if proto.Unmarshal(r.Any.GetValue(), s) == nil {
		switch kind := s.GetType().(type) {
		case *tlsv3.Secret_TlsCertificate:
			shown.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: kind.TlsCertificate.GetCertificateChain(),
				PrivateKey:       &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: redacted}},
			}}
		case *tlsv3.Secret_ValidationContext:
			shown.Type = kind
		}
	}
	return &Resource{Type: r.Type, Name: r.Name, Version: r.Version, Any: mustAny(shown), Owners: r.Owners}
}
