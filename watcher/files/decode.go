package files

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// used are the kinds that a translation reads; other kinds are passed over.
var used = map[schema.GroupVersionKind]bool{
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:      true,
	{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"}: true,
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}: true,
	{Group: "", Version: "v1", Kind: "Service"}:                       true,
	{Group: "", Version: "v1", Kind: "Secret"}:                        true,
	{Group: "", Version: "v1", Kind: "ConfigMap"}:                     true,
	{Group: "", Version: "v1", Kind: "Namespace"}:                     true,
}

// retired are former versions of the used kinds and what took their place. The
// kinds look right, so passing over them silently would puzzle people.
var retired = map[schema.GroupVersionKind]string{
	{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}:             "networking.k8s.io/v1",
	{Group: "networking.k8s.io", Version: "v1beta1", Kind: "Ingress"}:      "networking.k8s.io/v1",
	{Group: "networking.k8s.io", Version: "v1beta1", Kind: "IngressClass"}: "networking.k8s.io/v1",
	{Group: "discovery.k8s.io", Version: "v1beta1", Kind: "EndpointSlice"}: "discovery.k8s.io/v1",
}

// strict refuses unknown and repeated fields, as kubectl does.
var strict = kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kjson.SerializerOptions{Strict: true})

// object is what all used kinds are.
type object interface {
	runtime.Object
	metav1.Object
}

// decode returns the objects of one file, with their defaults, in order. A
// document that cannot be decoded gives an error and takes nothing else along.
func decode(name string, content []byte) ([]object, []error) {
	documents, err := split(name, content)
	var objects []object
	var errs []error
	for i, doc := range documents {
		found, problems := decodeDocument(doc)
		objects = append(objects, found...)
		for _, p := range problems {
			errs = append(errs, fmt.Errorf("document %d: %w", i+1, p))
		}
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("document %d: %w", len(documents)+1, err))
	}
	return objects, errs
}

// split returns the documents of a file as JSON. Documents that hold nothing
// but comments are null.
func split(name string, content []byte) ([][]byte, error) {
	if filepath.Ext(name) == ".json" {
		return splitJSON(content)
	}
	var out [][]byte
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, oneLine(err)
		}
		out = append(out, doc)
	}
}

func splitJSON(content []byte) ([][]byte, error) {
	var out [][]byte
	for d := json.NewDecoder(bytes.NewReader(content)); ; {
		var doc json.RawMessage
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, doc)
	}
}

// decodeDocument decodes one YAML or JSON document.
func decodeDocument(doc []byte) ([]object, []error) {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, []error{oneLine(err)}
	}
	if string(bytes.TrimSpace(data)) == "null" {
		return nil, nil
	}
	return decodeJSON(data)
}

// list is any kind whose name ends in List.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Items           []json.RawMessage `json:"items"`
}

// decodeJSON decodes an object, or the objects of a list.
func decodeJSON(data []byte) ([]object, []error) {
	var head list
	if err := json.Unmarshal(data, &head.TypeMeta); err != nil {
		return nil, []error{errors.New("not a Kubernetes object")}
	}
	if head.Kind == "" || head.APIVersion == "" {
		return nil, []error{errors.New("not a Kubernetes object: apiVersion and kind are required")}
	}
	gvk := head.GroupVersionKind()
	switch {
	case strings.HasSuffix(gvk.Kind, "List"):
		if err := json.Unmarshal(data, &head); err != nil {
			return nil, []error{fmt.Errorf("%s: items is not a list", gvk.Kind)}
		}
		return decodeItems(gvk, head.Items)
	case used[gvk]:
		obj, err := decodeObject(data)
		if err != nil {
			return nil, []error{err}
		}
		return []object{obj}, nil
	case retired[gvk] != "":
		return nil, []error{fmt.Errorf("%s: %s is no longer a Kubernetes API, use %s", describe(data), head.APIVersion, retired[gvk])}
	}
	return nil, nil
}

// decodeItems decodes the items of a list. In a list of one kind (IngressList)
// they need not repeat it.
func decodeItems(gvk schema.GroupVersionKind, items []json.RawMessage) ([]object, []error) {
	var objects []object
	var errs []error
	for i, item := range items {
		found, problems := decodeJSON(withKind(item, gvk))
		objects = append(objects, found...)
		for _, p := range problems {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, p))
		}
	}
	return objects, errs
}

// withKind adds the kind that a typed list implies to an item without one.
func withKind(item json.RawMessage, of schema.GroupVersionKind) json.RawMessage {
	kind := strings.TrimSuffix(of.Kind, "List")
	var fields map[string]json.RawMessage
	if kind == "" || json.Unmarshal(item, &fields) != nil || fields == nil || fields["kind"] != nil {
		return item
	}
	fields["kind"], _ = json.Marshal(kind)
	fields["apiVersion"], _ = json.Marshal(of.GroupVersion().String())
	out, _ := json.Marshal(fields) // a map of valid JSON values
	return out
}

// decodeObject decodes an object of a used kind and completes it.
func decodeObject(data []byte) (object, error) {
	decoded, gvk, err := strict.Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", describe(data), trimStrict(err))
	}
	obj, ok := decoded.(object)
	if !ok || obj.GetName() == "" {
		return nil, fmt.Errorf("%s: metadata.name is required", gvk.Kind)
	}
	complete(obj)
	return obj, nil
}

// describe names an object that could not be decoded.
func describe(data []byte) string {
	var m metav1.PartialObjectMetadata
	if json.Unmarshal(data, &m) != nil {
		var t metav1.TypeMeta
		_ = json.Unmarshal(data, &t) // it was decoded once already
		return t.Kind
	}
	return strings.TrimSpace(m.Kind + " " + m.Name)
}

// trimStrict shortens the error of the strict decoder to the field and what is
// wrong with it.
func trimStrict(err error) error {
	if s, ok := runtime.AsStrictDecodingError(err); ok {
		return join(s.Errors())
	}
	return err
}

// join makes one line of several errors; nil of none.
func join(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

// oneLine folds the line breaks of a YAML error.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
