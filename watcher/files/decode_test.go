package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairway/translator/model"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, file, in string
		objects        string
		errs           []string
	}{
		{"several documents", "x.yaml", serviceYAML + "---\n" + ingressYAML, "Service default/web, Ingress default/web", nil},
		{"separator with a comment, byte order mark, windows lines", "x.yaml", "\ufeff---  # first\r\n" + strings.ReplaceAll(serviceYAML, "\n", "\r\n"), "Service default/web", nil},
		{"nothing", "x.yaml", "# only this\n---\n\n---\n", "", nil},
		{"other kinds", "x.yaml", "apiVersion: apps/v1\nkind: Deployment\nnonsense: 1\n---\napiVersion: cert-manager.io/v1\nkind: Certificate\n", "", nil},
		{"a kind of the same name elsewhere", "x.yaml", "apiVersion: serving.knative.dev/v1\nkind: Service\n", "", nil},
		{"list", "x.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: b}}\n- {apiVersion: v1, kind: Pod}\n", "Namespace a", nil},
		{"typed list", "x.json", `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a","namespace":"n"}}]}`, "Service n/a", nil},
		{"typed list, bad item", "x.json", `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":{"prots":[]}}]}`,
			"Service default/a", []string{`document 1: items[1]: Service b: unknown field "spec.prots"`}},
		{"items of another type", "x.json", `{"apiVersion":"v1","kind":"List","items":7}`, "", []string{"document 1: List: items is not a list"}},
		{"unknown field, with its path", "x.yaml", serviceYAML + "---\n" + strings.Replace(ingressYAML, "service:", "servise:", 1),
			"Service default/web", []string{`document 2: Ingress web: unknown field "spec.defaultBackend.servise"`}},
		{"two unknown fields", "x.yaml", serviceYAML + "  a: 1\n  b: 2\n", "", []string{`document 1: Service web: unknown field "spec.a"; unknown field "spec.b"`}},
		{"field twice", "x.yaml", serviceYAML + "kind: Service\n", "", []string{`document 1: yaml: unmarshal errors: line 6: key "kind" already set in map`}},
		{"wrong type", "x.yaml", strings.Replace(serviceYAML, "80", "http", 1), "",
			[]string{`document 1: Service web: json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32`}},
		{"bad yaml", "x.yaml", "a: [1\n", "", []string{"document 1: yaml: line 1: did not find expected ',' or ']'"}},
		{"bad json", "x.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}} {`, "Namespace a", []string{"document 2: unexpected EOF"}},
		{"no kind", "x.yaml", "apiVersion: v1\nmetadata: {name: a}\n", "", []string{"document 1: not a Kubernetes object: apiVersion and kind are required"}},
		{"text", "x.yaml", "hello\n", "", []string{"document 1: not a Kubernetes object"}},
		{"no name", "x.yaml", "apiVersion: v1\nkind: Secret\n", "", []string{"document 1: Secret: metadata.name is required"}},
		{"retired version", "x.yaml", "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: old}\n", "",
			[]string{"document 1: Ingress old: extensions/v1beta1 is no longer a Kubernetes API, use networking.k8s.io/v1"}},
		{"separator with text", "x.yaml", serviceYAML + "--- junk\n", "", []string{"document 1: invalid Yaml document separator: junk"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, errs := decode(tt.file, []byte(tt.in))
			var got, problems []string
			for _, o := range objects {
				got = append(got, title(o))
			}
			for _, err := range errs {
				problems = append(problems, err.Error())
			}
			if strings.Join(got, ", ") != tt.objects {
				t.Errorf("objects: got %q, want %q", got, tt.objects)
			}
			if !slices.Equal(problems, tt.errs) {
				t.Errorf("errors: got %q, want %q", problems, tt.errs)
			}
		})
	}
}

func TestSecretStringData(t *testing.T) {
	objects, errs := decode("x.yaml", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==, b: Yg==}\nstringData: {b: new}\n"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	w := newWorld()
	w.add(objects[0])
	s := w.secrets[key{"default", "s"}]
	if string(s.Data["a"]) != "a" || string(s.Data["b"]) != "new" || s.StringData != nil || s.Type != "Opaque" {
		t.Errorf("got %v", s)
	}
}

func TestClasses(t *testing.T) {
	class := func(name, controller, isDefault string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: " + name +
			", annotations: {ingressclass.kubernetes.io/is-default-class: \"" + isDefault + "\"}}\nspec: {controller: " + controller + "}\n"
	}
	for _, tt := range []struct {
		name, in  string
		class     string // of the Ingress; empty: none
		synthetic bool
	}{
		{"no class at all", ingressYAML, "fairway", true},
		{"only others' classes", ingressYAML + "---\n" + class("x", "other/c", "false"), "fairway", true},
		{"another's default", ingressYAML + "---\n" + class("x", "other/c", "true"), "x", true},
		{"ours, not default", ingressYAML + "---\n" + class("mine", DefaultControllerClass, "false"), "", false},
		{"ours, default", ingressYAML + "---\n" + class("mine", DefaultControllerClass, "true"), "mine", false},
		{"two defaults", ingressYAML + "---\n" + class("b", DefaultControllerClass, "true") + "---\n" + class("a", "other/c", "true"), "a", false},
		{"our name is taken", ingressYAML + "---\n" + class("fairway", "other/c", "false"), "", false},
		{"class given", strings.Replace(ingressYAML, "spec:", "spec:\n  ingressClassName: x", 1), "x", true},
		{"legacy annotation", strings.Replace(ingressYAML, "{name: web}", `{name: web, annotations: {kubernetes.io/ingress.class: x}}`, 1), "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.yaml")
			write(t, path, tt.in)
			src, errs := Load(path)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			got := ""
			if name := src.Ingress(webIngress).Spec.IngressClassName; name != nil {
				got = *name
			}
			if got != tt.class {
				t.Errorf("class: got %q, want %q", got, tt.class)
			}
			c := src.Class(DefaultIngressClass)
			if synthetic := c != nil && c.Spec.Controller == DefaultControllerClass; synthetic != tt.synthetic {
				t.Errorf("added class: got %v, want %v", synthetic, tt.synthetic)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "x.yaml"), serviceYAML)
	write(t, filepath.Join(dir, "b.txt"), ingressYAML) // named on the command line: any name will do
	write(t, filepath.Join(dir, "bad.yaml"), "hello\n")
	src, errs := Load(filepath.Join(dir, "a"), filepath.Join(dir, "b.txt"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "none.yaml"))
	if src.Service(webService) == nil || src.Ingress(webIngress) == nil {
		t.Error("an object is missing")
	}
	var got []string
	for _, err := range errs {
		got = append(got, strings.ReplaceAll(err.Error(), dir+string(os.PathSeparator), ""))
	}
	slices.Sort(got)
	want := []string{"bad.yaml: document 1: not a Kubernetes object", "reading manifests: stat none.yaml: no such file or directory"}
	if !slices.Equal(got, want) {
		t.Errorf("errors: got %q, want %q", got, want)
	}
	if n := len(slices.Collect(src.Ingresses())); n != 1 {
		t.Errorf("ingresses: got %d, want 1", n)
	}
	if src.Secret(model.Ref{Kind: model.Secret, Namespace: "default", Name: "none"}) != nil {
		t.Error("a Secret that does not exist")
	}
}
