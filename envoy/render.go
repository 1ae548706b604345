package envoy

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// RenderYAML writes a message as people read it: YAML with sorted keys, the
// same for equal messages. (protojson varies its output on purpose.)
func RenderYAML(m proto.Message) ([]byte, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return yaml.Marshal(v)
}
