package translator

import (
	"testing"

	"fairway/translator/model"
)

// The operator is told once about a default certificate or backend that cannot
// be used, and again when it breaks again.
func TestOperatorIsTold(t *testing.T) {
	config := testConfig
	config.DefaultCertificate = refOf(model.Secret, "shop", "t")
	config.DefaultBackend = refOf(model.Service, "shop", "web")
	w := newWorld()
	tr := New(config)
	notes := func(dirty ...model.Ref) []string {
		d := newDirty()
		for _, r := range dirty {
			d.Config[r] = struct{}{}
		}
		var out []string
		for _, n := range tr.Apply(w, d).Notes {
			out = append(out, n.Object.String()+" "+n.Reason)
		}
		return out
	}
	check := func(got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	check(notes(), "Service shop/web ServiceNotFound", "Secret shop/t SecretNotFound")
	check(notes(config.DefaultBackend, config.DefaultCertificate))
	w.add(t, []byte(oneIngress))
	check(notes(config.DefaultBackend))
	delete(w.services, config.DefaultBackend)
	check(notes(config.DefaultBackend), "Service shop/web ServiceNotFound")
	w.secrets[config.DefaultCertificate] = tlsSecret("", "")
	check(notes(config.DefaultCertificate), "Secret shop/t SecretInvalid")
}
