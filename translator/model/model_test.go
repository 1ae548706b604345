package model

import "testing"

func TestParseRefReadsString(t *testing.T) {
	for _, r := range []Ref{{Service, "shop", "web"}, {Class, "", "fairway"}} {
		if got, ok := ParseRef(r.String()); !ok || got != r {
			t.Errorf("%s is read as %v", r, got)
		}
	}
	for _, s := range []string{"", "Service", "Service ", " shop/web"} {
		if got, ok := ParseRef(s); ok {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}
