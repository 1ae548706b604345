package xds

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// codec is gRPC's protobuf codec, except that frames are encoded already and
// that large messages wait for a slot for heavy work.
type codec struct {
	encoding.CodecV2
	heavy chan struct{}
}

func newCodec(heavy chan struct{}) *codec {
	return &codec{CodecV2: encoding.GetCodecV2(proto.Name), heavy: heavy}
}

// Marshal returns frames as they are: their buffers are shared and not pooled, so
// gRPC may free them without harm.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(frame); ok {
		return mem.BufferSlice(f), nil
	}
	if m, ok := v.(protobuf.Message); ok && protobuf.Size(m) > heavyBytes {
		c.heavy <- struct{}{}
		defer func() { <-c.heavy }()
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal bounds how many large requests are decoded at a time: an Envoy that
// reconnects lists the version of everything it has.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	if data.Len() > heavyBytes {
		c.heavy <- struct{}{}
		defer func() { <-c.heavy }()
	}
	return c.CodecV2.Unmarshal(data, v)
}
