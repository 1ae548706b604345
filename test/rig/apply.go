package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// fieldManager owns the fields that the rig applies.
const fieldManager = "rig"

// Apply creates or changes the objects of a YAML text, as "kubectl apply
// --server-side --force-conflicts" does. Objects without a namespace go to
// default.
func (k *Kube) Apply(t T, manifests string) {
	t.Helper()
	if err := k.TryApply(manifests); err != nil {
		t.Fatalf("%v", err)
	}
}

// TryApply is Apply for objects that the API server may refuse.
func (k *Kube) TryApply(manifests string) error { return k.applyYAML(manifests, metav1.ApplyOptions{}) }

// DryRun asks the API server whether it would accept the objects.
func (k *Kube) DryRun(manifests string) error {
	return k.applyYAML(manifests, metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}})
}

// ApplyObjects is Apply for typed objects.
func (k *Kube) ApplyObjects(t T, objects ...runtime.Object) {
	t.Helper()
	if err := k.TryApplyObjects(objects...); err != nil {
		t.Fatalf("%v", err)
	}
}

// TryApplyObjects is ApplyObjects for objects that the API server may refuse.
func (k *Kube) TryApplyObjects(objects ...runtime.Object) error {
	list := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		u, err := untyped(o)
		if err != nil {
			return err
		}
		list = append(list, u)
	}
	return k.apply(list, metav1.ApplyOptions{})
}

// Delete removes the objects of a YAML text. Those that are gone already are
// no error.
func (k *Kube) Delete(t T, manifests string) {
	t.Helper()
	objects, err := decode(manifests)
	if err != nil {
		t.Fatalf("%v", err)
	}
	k.remove(t, objects)
}

// DeleteObjects is Delete for typed objects.
func (k *Kube) DeleteObjects(t T, objects ...runtime.Object) {
	t.Helper()
	for _, o := range objects {
		u, err := untyped(o)
		if err != nil {
			t.Fatalf("%v", err)
		}
		k.remove(t, []*unstructured.Unstructured{u})
	}
}

func (k *Kube) remove(t T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		client, err := k.clientFor(o)
		if err == nil {
			err = client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("delete %s: %v", describe(o), err)
		}
	}
}

func (k *Kube) applyYAML(manifests string, o metav1.ApplyOptions) error {
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	return k.apply(objects, o)
}

// apply applies all objects, also those after a refused one.
func (k *Kube) apply(objects []*unstructured.Unstructured, o metav1.ApplyOptions) error {
	o.FieldManager, o.Force = fieldManager, true
	var errs []error
	for _, object := range objects {
		client, err := k.clientFor(object)
		if err == nil {
			_, err = client.Apply(context.Background(), object.GetName(), object, o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("apply %s: %w", describe(object), err))
		}
	}
	return errors.Join(errs...)
}

// clientFor returns the client of an object's resource and namespace.
func (k *Kube) clientFor(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	client := k.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client, nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	return client.Namespace(o.GetNamespace()), nil
}

// decode reads the documents of a YAML text; lists are taken apart.
func decode(manifests string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read YAML: %w", err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			return nil, fmt.Errorf("read YAML: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if !u.IsList() {
			objects = append(objects, u)
			continue
		}
		err = u.EachListItem(func(item runtime.Object) error {
			if o, ok := item.(*unstructured.Unstructured); ok {
				objects = append(objects, o)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read list: %w", err)
		}
	}
}

// untyped converts an object of a built-in kind.
func untyped(o runtime.Object) (*unstructured.Unstructured, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	// What the server owns is not ours to apply.
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kinds[0])
	return u, nil
}

func describe(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}
