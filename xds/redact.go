package xds

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairway/envoy"
)

const redactedText = "[redacted]"

// redacted returns a Secret without anything secret.
func (it *item) redacted() *envoy.Resource {
	b := it.sotw.ReadOnlyData()
	_, _, n := protowire.ConsumeTag(b)
	body, _ := protowire.ConsumeBytes(b[n:])
	a := &anypb.Any{}
	if proto.Unmarshal(body, a) != nil {
		a = &anypb.Any{TypeUrl: envoy.Secret.URL()}
	}
	return envoy.Redact(&envoy.Resource{Type: envoy.Secret, Name: it.name, Version: it.version, Any: a})
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
