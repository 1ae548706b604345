package envoy

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

const redacted = "[redacted]"

// Redact returns the resource as people may see it: a Secret without its
// private keys. Every other resource is returned as it is.
func Redact(r *Resource) *Resource {
	if r.Type != Secret {
		return r
	}
	// Whatever cannot be read is not shown at all.
	shown := &tlsv3.Secret{Name: r.Name}
	s := &tlsv3.Secret{}
	if proto.Unmarshal(r.Any.GetValue(), s) == nil && s.GetTlsCertificate() != nil {
		shown.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: s.GetTlsCertificate().GetCertificateChain(),
			PrivateKey:       inlineBytes([]byte(redacted)),
		}}
	}
	any := mustAny(shown)
	return &Resource{Type: r.Type, Name: r.Name, Version: r.Version, Any: any, Owners: r.Owners}
}
