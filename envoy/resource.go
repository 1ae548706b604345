// Package envoy is the proxy side of Fairway's vocabulary: typed builders for
// Envoy's resources, their names, their encoded form and the bootstrap. It
// knows nothing of Kubernetes or gRPC.
package envoy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type is a kind of xDS resource.
type Type uint8

// The types that Fairway serves, in the order in which they are introduced to
// an Envoy (make before break).
const (
	Cluster Type = iota
	Endpoint
	Secret
	ExtensionConfig
	Route
	Listener
	NumTypes = int(Listener) + 1
)

var typeURLs = [NumTypes]string{
	Cluster:         "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	Endpoint:        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	Secret:          "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	ExtensionConfig: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
	Route:           "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	Listener:        "type.googleapis.com/envoy.config.listener.v3.Listener",
}

var typeNames = [NumTypes]string{"Cluster", "Endpoint", "Secret", "ExtensionConfig", "Route", "Listener"}

// URL returns the type URL that xDS requests use.
func (t Type) URL() string { return typeURLs[t] }

// String returns the short name that logs, metrics and the command line use.
func (t Type) String() string { return typeNames[t] }

// MarshalText writes the short name into JSON.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// TypeOf returns the Type with the given URL.
func TypeOf(url string) (Type, bool) {
	for t, u := range typeURLs {
		if u == url {
			return Type(t), true
		}
	}
	return 0, false
}

// Name identifies a resource within all types.
type Name struct {
	Type Type
	Name string
}

// Compare orders Names by type, then name.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Type, o.Type), cmp.Compare(n.Name, o.Name))
}

// Resource is one xDS resource, encoded once and shared by every stream.
// It is immutable.
type Resource struct {
	Type    Type
	Name    string
	Version string     // hash of the content: equal content has an equal version everywhere
	Any     *anypb.Any // deterministic bytes
	Owners  []string   // the objects it was made from, such as "Ingress shop/web", sorted
}

// Key returns the resource's identity.
func (r *Resource) Key() Name { return Name{r.Type, r.Name} }

// Delta is a set of changes that belong together: an Envoy sees all of them or
// none.
type Delta struct {
	Upserts []*Resource
	Removes []Name
}

// Empty reports whether the delta changes nothing.
func (d Delta) Empty() bool { return len(d.Upserts) == 0 && len(d.Removes) == 0 }

// Encode validates a message with the constraints of its own definition and
// encodes it. An error means that Envoy would refuse the resource.
func Encode(t Type, name string, m proto.Message, owners ...string) (*Resource, error) {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return nil, fmt.Errorf("%s %s: %w", t, name, err)
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%s %s: encode: %w", t, name, err)
	}
	return &Resource{Type: t, Name: name, Version: Version(b), Any: &anypb.Any{TypeUrl: t.URL(), Value: b}, Owners: owners}, nil
}

// Version returns the version of encoded content: 64 bits of its SHA-256 in
// hex. Short, because a reconnecting Envoy sends the version of everything.
func Version(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
