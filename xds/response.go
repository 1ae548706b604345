package xds

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"fairway/envoy"
)

// Field numbers of DiscoveryResponse, DeltaDiscoveryResponse and Resource.
const (
	versionInfo      = 1 // DiscoveryResponse; in DeltaDiscoveryResponse it is for debugging only, and left out
	resources        = 2 // both responses, and the Any inside a Resource
	typeURL          = 4 // both responses
	nonce            = 5 // both responses
	removedResources = 6 // DeltaDiscoveryResponse
	resourceVersion  = 1 // Resource
	resourceName     = 3 // Resource
)

// response is a decided response: what it carries was chosen under the store's
// lock, and everything in it is immutable, so it can be encoded later.
type response struct {
	typ     envoy.Type
	version string
	items   []*item
	missing []string // names to answer with an empty load assignment: silence would keep the Cluster warming
	removed []removal

	// What the session needs when the answer to this response comes.
	nonce      string
	fresh      []*item // the part of items that the client is meant to take up
	before     []*item // of fresh, in a full state: what to show instead if it is refused
	introduces bitset  // Clusters that the client knows once this is acknowledged
	warms      bitset  // Clusters that have all they need once this is acknowledged
	since      uint64  // no change before this generation is missing afterwards
	waits      []*propagation
	expired    bool // gates no longer wait for it
}

// removal is a name that the client has to forget.
type removal struct {
	id   id
	name string
}

// frame is an encoded message: one buffer of its own, the rest shared with all
// streams.
type frame mem.BufferSlice

// encode builds the message without copying resources.
func (r *response) encode(delta, redacted bool) frame {
	f := make(frame, 1, 1+len(r.items))
	b := make([]byte, 0, 128)
	if !delta {
		b = str(b, versionInfo, r.version)
	}
	b = str(b, typeURL, r.typ.URL())
	b = str(b, nonce, r.nonce)
	for _, m := range r.removed {
		if delta {
			b = str(b, removedResources, m.name)
		}
	}
	for _, name := range r.missing {
		empty := encodedAny(envoy.Endpoint.URL(), str(nil, 1, name))
		b = append(header(b, resources, len(empty)), empty...)
	}
	f[0] = mem.SliceBuffer(b)
	for _, it := range r.items {
		f = append(f, it.buffer(r.typ, delta, redacted))
	}
	return f
}

// buffer returns the encoded form for a protocol. People's streams are rare, so
// the redacted form of a Secret is made when it is needed.
func (it *item) buffer(t envoy.Type, delta, redacted bool) mem.Buffer {
	if redacted && t == envoy.Secret {
		it, _ = newItem(it.id, it.redacted(), it.version)
	}
	if delta {
		return it.delta
	}
	return it.sotw
}

// encodedAny returns the encoding of an Any.
func encodedAny(url string, value []byte) []byte {
	b := str(nil, 1, url)
	return append(header(b, 2, len(value)), value...)
}

// header appends the tag and length of a length-delimited field.
func header(b []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
}

// str appends a string field; like protobuf it leaves an empty one out.
func str(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return append(header(b, num, len(s)), s...)
}

// field returns the size of a length-delimited field.
func field(num protowire.Number, size int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(size)
}

// shared returns res with its bytes replaced by equal ones.
func shared(res *envoy.Resource, body []byte) *envoy.Resource {
	c := *res
	c.Any = &anypb.Any{TypeUrl: res.Any.GetTypeUrl(), Value: body}
	return &c
}

// sumVersion turns the sum over the hashes of a set of resources into a version.
func sumVersion(sum uint64) string { return fmt.Sprintf("%016x", sum) }
