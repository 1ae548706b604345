package envoy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		ClusterName("shop", "web", 80):                "shop/web/80",
		SecretName("shop", "web"):                     "tls/shop/web",
		statName(ClusterName("shop", "web", 80)):      "shop_web_80",
		statName("shop/v1.web/80"):                    "shop_v1_web_80",
		Escape("100%"):                                "100%%",
		Escape("%REQ(authorization)%"):                "%%REQ(authorization)%%",
		Escape("%%"):                                  "%%%%",
		Escape("plain"):                               "plain",
		Cluster.String() + " " + Listener.String():    "Cluster Listener",
		(Name{Type: Route, Name: "http"}).Type.URL():  "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
		strings.TrimPrefix(DefaultSecretName, "tls/"): "default",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// No Kubernetes Secret can take the name of the default certificate.
func TestDefaultSecretNameIsUnique(t *testing.T) {
	if strings.Count(SecretName("default", "x"), "/") == strings.Count(DefaultSecretName, "/") {
		t.Error("a Secret may be named like the default certificate")
	}
}

// Envoy reads escaped text as the text itself.
func TestEscapeIsLiteral(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("%a(R)"))).Draw(r, "text")
		if got := strings.ReplaceAll(Escape(text), "%%", "%"); got != text {
			r.Fatalf("%q becomes %q", text, got)
		}
		if strings.Count(Escape(text), "%")%2 != 0 {
			r.Fatalf("%q opens a command", Escape(text))
		}
	})
}

func TestTypes(t *testing.T) {
	for i := range NumTypes {
		if got, ok := TypeOf(Type(i).URL()); !ok || got != Type(i) {
			t.Errorf("%s is read as %s", Type(i), got)
		}
		if text, err := Type(i).MarshalText(); err != nil || string(text) != Type(i).String() {
			t.Errorf("%s is written as %s", Type(i), text)
		}
	}
	if _, ok := TypeOf("type.googleapis.com/envoy.config.route.v3.VirtualHost"); ok {
		t.Error("a type that is not served has a Type")
	}
}

func TestServerNameOfAnUpstream(t *testing.T) {
	for host, want := range map[string]string{"example.org": "example.org", "example.org.": "example.org", "10.1.2.3": "", "fd00::1": ""} {
		if got := sni(host); got != want {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
}
