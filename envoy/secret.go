package envoy

import (
	"fmt"
	"io"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// Certificate is a certificate chain, leaf first, and its private key, both in
// PEM. It prints as a placeholder so that a key cannot reach a log.
type Certificate struct {
	Chain, Key []byte
}

// Format keeps the key out of every formatted output.
func (Certificate) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText keeps it out of JSON and of structured logs.
func (Certificate) MarshalText() ([]byte, error) { return []byte(hidden), nil }

const hidden = "[certificate]"

// CertificateSecret builds the Secret resource of a certificate.
func CertificateSecret(name string, c Certificate) *tlsv3.Secret {
	return &tlsv3.Secret{
		Name: name,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inlineBytes(c.Chain),
			PrivateKey:       inlineBytes(c.Key),
		}},
	}
}

func inlineBytes(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
