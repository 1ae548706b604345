package translator

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"fairway/envoy"
	"fairway/translator/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testConfig = Config{
	ControllerClass: "fairway.sh/ingress-controller", IngressClass: "fairway", WithoutClass: true,
	HTTPPort: 8080, HTTPSPort: 8443,
	Fallback: fallbackPair(),
}

// Each file of testdata is one case: in.yaml is translated with config.yaml on
// top of testConfig; out.yaml holds the resources and reports.txt what the
// owners are told. out.yaml shows only what differs from what every such
// resource has; full.txtar shows that once. "$cert(a.test, *.a.test)" in the
// data of a Secret stands for a key or a certificate for these names.
//
// What comes out must also be valid in itself, and Envoy must take it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	t.Parallel()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w, config := newWorld(), testConfig
	w.add(t, section(archive, "in.yaml"))
	issueCertificates(t, w)
	if err := yaml.UnmarshalStrict(section(archive, "config.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	result := Full(config, w)
	resources := byName(result.Delta.Upserts)
	checkSection(t, archive, file, "out.yaml", render(t, resources, filepath.Base(file) == "full.txtar"))
	checkSection(t, archive, file, "reports.txt", renderReports(result.Verdicts))
	for _, problem := range invalid(resources) {
		t.Error(problem)
	}
	validate(t, resources)
}

func checkSection(t *testing.T, archive *txtar.Archive, file, name string, got []byte) {
	if *update {
		setSection(archive, name, got)
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(section(archive, name)), string(got)); d != "" {
		t.Errorf("%s differs (-want +got); `make golden` rewrites it:\n%s", name, d)
	}
}

func byName(resources []*envoy.Resource) map[envoy.Name]*envoy.Resource {
	out := map[envoy.Name]*envoy.Resource{}
	for _, r := range resources {
		out[r.Key()] = r
	}
	return out
}

var certMarker = regexp.MustCompile(`^\$cert\((.*)\)$`)

// issueCertificates fills in what the Secrets ask for. Equal markers in one
// Secret belong together.
func issueCertificates(t testing.TB, w *world) {
	for _, s := range w.secrets {
		pairs := map[string]map[string][]byte{}
		for key, text := range s.StringData {
			value := []byte(text)
			if m := certMarker.FindStringSubmatch(text); m != nil {
				if pairs[text] == nil {
					pairs[text] = newPair(strings.Split(m[1], ", ")...)
				}
				value = pairs[text][key]
			}
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[key] = value
		}
		s.StringData = nil
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func setSection(a *txtar.Archive, name string, data []byte) {
	for i, f := range a.Files {
		if f.Name == name {
			a.Files[i].Data = data
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: data})
}

func renderReports(verdicts []model.Verdict) []byte {
	var b bytes.Buffer
	for _, v := range verdicts {
		if !v.Served {
			fmt.Fprintf(&b, "%s is not served\n", v.Ingress)
		}
		for _, r := range v.Reports {
			fmt.Fprintf(&b, "%s %s %s %s: %s\n", r.Severity, r.Object, r.Reason, r.Field, r.Message)
		}
	}
	return b.Bytes()
}
