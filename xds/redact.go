package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"strings"

	"fairway/envoy"
)

const redactedText = "[redacted]"

// redacted returns the Secret without anything secret.
func (it *item) redacted() *envoy.Resource {
	b := it.sotw.ReadOnlyData()
	_, _, n := protowire.ConsumeTag(b)
	body, _ := protowire.ConsumeBytes(b[n:])
	a := &anypb.Any{}
	if proto.Unmarshal(body, a) != nil {
		a = &anypb.Any{TypeUrl: envoy.Secret.URL()}
	}
	return &envoy.Resource{Type: envoy.Secret, Name: it.name, Version: it.version, Any: redactSecret(it.name, a)}
}

// redactSecret keeps certificates and names. Whatever it does not know it
// leaves out.
func redactSecret(name string, a *anypb.Any) *anypb.Any {
	in, out := &tlsv3.Secret{}, &tlsv3.Secret{Name: name}
	if a.UnmarshalTo(in) == nil {
		switch kind := in.GetType().(type) {
		case *tlsv3.Secret_TlsCertificate:
			out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: kind.TlsCertificate.GetCertificateChain(),
				PrivateKey:       hidden(),
			}}
		case *tlsv3.Secret_ValidationContext:
			out.Type = kind
		case *tlsv3.Secret_SessionTicketKeys:
			out.Type = &tlsv3.Secret_SessionTicketKeys{SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{hidden()}}}
		case *tlsv3.Secret_GenericSecret:
			out.Type = &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: hidden()}}
		}
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		value = nil
	}
	return &anypb.Any{TypeUrl: envoy.Secret.URL(), Value: value}
}

// hidden stands in place of something secret; it keeps the message valid.
func hidden() *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: redactedText}}
}

// maxMessage bounds what is kept of a client's error text.
const maxMessage = 4096

// nackMessage returns the client's error text as it may be shown. Envoy prints
// the refused resource into it, so of a Secret only the part before that stays.
func nackMessage(t envoy.Type, text string) string {
	if t == envoy.Secret {
		for _, mark := range []string{"{", "goo.gle/", "-----BEGIN", "\n", ": name:"} {
			if i := strings.Index(text, mark); i >= 0 {
				text = text[:i] + redactedText
			}
		}
	}
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return text
}
