package translator

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/envoy"
	"fairway/translator/model"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// testCertificates returns the data of Secrets: three good ones, a mismatched
// pair, and garbage.
func testCertificates() []map[string][]byte {
	a, b := newPair("a.test", "*.a.test"), newPair("b.test")
	return []map[string][]byte{
		a, b, newPair("a.test"),
		{"tls.crt": a["tls.crt"], "tls.key": b["tls.key"]},
		{"tls.crt": []byte("no PEM"), "tls.key": nil},
	}
}

// fallbackPair is the certificate for server names without one.
func fallbackPair() envoy.Certificate {
	pair := newPair("fallback.invalid")
	return envoy.Certificate{Chain: pair["tls.crt"], Key: pair["tls.key"]}
}

func newPair(names ...string) map[string][]byte {
	key := newECKey(elliptic.P256())
	return pairFor(key, certificateFor(key, names...))
}

func newECKey(c elliptic.Curve) *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(c, rand.Reader)) }

func pairFor(key crypto.Signer, chain ...[]byte) map[string][]byte {
	var crt []byte
	for _, der := range chain {
		crt = append(crt, block("CERTIFICATE", der)...)
	}
	return map[string][]byte{"tls.crt": crt, "tls.key": block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))}
}

func block(typ string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
}

// certificateFor returns a self-signed certificate that is valid until 2242.
func certificateFor(key crypto.Signer, names ...string) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotAfter: time.Unix(1<<33, 0)}
	return must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
}

// An authority signs leaves: root → intermediate → leaf.
func issuedChain(leaf crypto.Signer) (root, intermediate, issued []byte) {
	template := func(serial int64, name string, ca bool) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Unix(1<<33, 0), IsCA: ca, BasicConstraintsValid: ca}
	}
	rootKey, middleKey := newECKey(elliptic.P256()), newECKey(elliptic.P256())
	r, m, l := template(1, "root", true), template(2, "intermediate", true), template(3, "leaf", false)
	l.DNSNames = []string{"a.test"}
	return must(x509.CreateCertificate(rand.Reader, r, r, rootKey.Public(), rootKey)),
		must(x509.CreateCertificate(rand.Reader, m, r, middleKey.Public(), rootKey)),
		must(x509.CreateCertificate(rand.Reader, l, m, leaf.Public(), middleKey))
}

// secp256k1Key is a key on a curve that Go does not have. All its bytes are 1,
// and it protects nothing.
const secp256k1Key = `-----BEGIN EC PRIVATE KEY-----
MC4CAQEEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBoAcGBSuBBAAK
-----END EC PRIVATE KEY-----
`

// What people put into Secrets, and what becomes of it: problem is the text
// that its owner reads, empty where Envoy must take the certificate.
func TestCertificateMaterial(t *testing.T) {
	ec, rsaKey := newECKey(elliptic.P256()), must(rsa.GenerateKey(rand.Reader, 2048))
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	good := pairFor(ec, certificateFor(ec, "a.test"))
	crt, key := string(good["tls.crt"]), string(good["tls.key"])
	sec1 := string(block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ec))))
	parameters := string(block("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}))
	root, middle, leaf := issuedChain(ec)
	expired := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.test"}, NotAfter: time.Unix(1, 0)}
	anonymous := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a.test"}, NotAfter: time.Unix(1<<33, 0)}
	self := func(c *x509.Certificate) string {
		return string(block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, c, c, ec.Public(), ec))))
	}
	of := func(k crypto.Signer) [2]string {
		p := pairFor(k, certificateFor(k, "a.test"))
		return [2]string{string(p["tls.crt"]), string(p["tls.key"])}
	}
	with := func(change func(*x509.Certificate)) string {
		c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a.test"}, DNSNames: []string{"a.test"}, NotAfter: time.Unix(1<<33, 0)}
		change(c)
		return self(c)
	}
	unnamed := func(c *x509.Certificate) { c.Subject, c.DNSNames = pkix.Name{}, nil }
	emptyName := pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: oidCommonName, Value: ""}, {Type: oidCommonName, Value: "a.test"}}}
	features := func(f ...int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: oidTLSFeature, Value: must(asn1.Marshal(f))}}
		}
	}
	chain := func(ders ...[]byte) string { return string(pairFor(ec, ders...)["tls.crt"]) }

	const noKey, noCert, noMatch = "tls.key holds no private key in PEM", "tls.crt holds no certificate in PEM", "tls.key does not belong to any certificate in tls.crt"
	const unreadable = "the private key in tls.key cannot be read, or its kind or curve is not supported"
	const nameless = "the certificate has an empty common name, or neither a common name nor subject alternative names"
	const noSignature = "the key usage of the certificate does not allow digital signatures"
	for name, c := range map[string]struct {
		pair    [2]string
		problem string
		warning string
	}{
		"P-256":                           {pair: [2]string{crt, key}},
		"P-384":                           {pair: of(newECKey(elliptic.P384()))},
		"P-521":                           {pair: of(newECKey(elliptic.P521()))},
		"Ed25519":                         {pair: of(edKey)},
		"RSA-2048":                        {pair: of(rsaKey)},
		"RSA-2048 in PKCS #1":             {pair: [2]string{of(rsaKey)[0], string(block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)))}},
		"EC PARAMETERS before the key":    {pair: [2]string{crt, parameters + sec1}},
		"CRLF":                            {pair: [2]string{crlf(crt), crlf(key)}},
		"text before the PEM":             {pair: [2]string{"subject=/CN=a.test\n\n" + crt, "Bag Attributes\n    friendlyName: a\n" + key}},
		"no final newline":                {pair: [2]string{strings.TrimSpace(crt), strings.TrimSpace(key)}},
		"blank lines":                     {pair: [2]string{"\n\n" + crt + "\n\n", "\n\n" + key + "\n\n"}},
		"key appended to the certificate": {pair: [2]string{crt + key, key}},
		"certificate before the key":      {pair: [2]string{crt, crt + key}},
		"leaf twice":                      {pair: [2]string{crt + crt, key}},
		"expired":                         {pair: [2]string{self(expired), key}},
		"chain":                           {pair: [2]string{chain(leaf, middle, root), key}},
		"chain, leaf last":                {pair: [2]string{chain(root, middle, leaf), key}},
		"chain, leaf in the middle":       {pair: [2]string{chain(middle, leaf, root), key}},
		"no names":                        {pair: [2]string{self(anonymous), key}, warning: "Secret shop/t has a certificate without subject alternative names, which no client accepts"},
		"no names at all":                 {pair: [2]string{with(unnamed), key}, problem: nameless},
		"an e-mail address only":          {pair: [2]string{with(func(c *x509.Certificate) { unnamed(c); c.EmailAddresses = []string{"a@a.test"} }), key}, problem: nameless},
		"empty common name":               {pair: [2]string{with(func(c *x509.Certificate) { c.Subject = emptyName }), key}, problem: nameless},
		"a host name only":                {pair: [2]string{with(func(c *x509.Certificate) { c.Subject = pkix.Name{} }), key}},
		"an address only":                 {pair: [2]string{with(func(c *x509.Certificate) { unnamed(c); c.IPAddresses = []net.IP{{10, 0, 0, 1}} }), key}},
		"must staple":                     {pair: [2]string{with(features(17, 5)), key}, problem: "the certificate demands a stapled OCSP response, which a Secret cannot hold"},
		"another TLS feature":             {pair: [2]string{with(features(17)), key}},
		"EC for signatures":               {pair: [2]string{with(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), key}},
		"EC for key encipherment":         {pair: [2]string{with(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }), key}, problem: noSignature},
		"EC with a foreign public key":    {pair: [2]string{crt, ecKey(ec, &newECKey(elliptic.P256()).PublicKey)}},
		"EC without a public key":         {pair: [2]string{crt, ecKey(ec, nil)}},
		"RSA without its factors' powers": {pair: [2]string{of(rsaKey)[0], shortRSAKey(rsaKey)}},
		"RSA-1024":                        {pair: of(weak), problem: "the RSA key has 1024 bits, less than 2048"},
		"P-224":                           {pair: of(newECKey(elliptic.P224())), problem: "the curve P-224 is not supported: use P-256"},
		"secp256k1 key":                   {pair: [2]string{crt, secp256k1Key}, problem: unreadable},
		"key of another pair":             {pair: [2]string{crt, string(newPair("b.test")["tls.key"])}, problem: noMatch},
		"chain without its leaf":          {pair: [2]string{chain(root, middle), key}, problem: noMatch},
		"empty":                           {problem: noCert},
		"empty key":                       {pair: [2]string{crt, ""}, problem: noKey},
		"garbage":                         {pair: [2]string{"certificate", "key"}, problem: noCert},
		"garbage key":                     {pair: [2]string{crt, "key"}, problem: noKey},
		"broken key":                      {pair: [2]string{crt, string(block("PRIVATE KEY", []byte("key")))}, problem: unreadable},
		"broken certificate":              {pair: [2]string{string(block("CERTIFICATE", []byte("x"))), key}, problem: "certificate 1 in tls.crt cannot be read: x509: malformed certificate"},
		"key and certificate swapped":     {pair: [2]string{key, crt}, problem: noCert},
		"encrypted key":                   {pair: [2]string{crt, string(block("ENCRYPTED PRIVATE KEY", []byte("x")))}, problem: "tls.key is encrypted"},
		"encrypted key, old form": {pair: [2]string{crt, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("x"),
			Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}}))}, problem: "tls.key is encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readCertificate(tlsSecret(c.pair[0], c.pair[1]), model.Ref{Kind: model.Secret, Namespace: "shop", Name: "t"})
			noKeyBytes(t, got, c.pair[1])
			if c.problem != "" {
				if got.problem == nil || got.problem.reason != "SecretInvalid" || got.problem.message != "Secret shop/t cannot be used: "+c.problem {
					t.Fatalf("got %v, want %s", got.problem, c.problem)
				}
				if got.resource != nil {
					t.Fatal("there is a resource")
				}
				return
			}
			if got.problem != nil {
				t.Fatal(got.problem)
			}
			if c.warning == "" && len(got.warnings) > 0 || c.warning != "" && (len(got.warnings) != 1 || got.warnings[0].message != c.warning) {
				t.Errorf("got warnings %v, want %s", got.warnings, c.warning)
			}
			if strings.Contains(string(got.pair.Chain), "PRIVATE") {
				t.Error("the chain holds a key")
			}
			validate(t, oneCertificate(got))
		})
	}
}

// ecKey encodes a key in SEC 1, together with a public key that need not be its
// own.
func ecKey(k *ecdsa.PrivateKey, public *ecdsa.PublicKey) string {
	var content struct {
		Version int
		Private []byte
		Curve   asn1.ObjectIdentifier `asn1:"explicit,tag:0"`
		Public  asn1.BitString        `asn1:"optional,explicit,tag:1"`
	}
	content.Version, content.Private, content.Curve = 1, must(k.Bytes()), asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}
	if public != nil {
		content.Public.Bytes = must(public.Bytes())
		content.Public.BitLength = 8 * len(content.Public.Bytes)
	}
	return string(block("EC PRIVATE KEY", must(asn1.Marshal(content))))
}

// shortRSAKey encodes a key in PKCS #1 and leaves out what follows from the rest.
func shortRSAKey(k *rsa.PrivateKey) string {
	content := struct {
		Version int
		N       *big.Int
		E       int
		D, P, Q *big.Int
	}{0, k.N, k.E, k.D, k.Primes[0], k.Primes[1]}
	return string(block("RSA PRIVATE KEY", must(asn1.Marshal(content))))
}

// A chain is served leaf first, each certificate followed by its issuer.
func TestChainOrder(t *testing.T) {
	key := newECKey(elliptic.P256())
	root, middle, leaf := issuedChain(key)
	want := string(pairFor(key, leaf, middle, root)["tls.crt"])
	for _, chain := range [][][]byte{{leaf, middle, root}, {root, middle, leaf}, {middle, leaf, root}, {root, leaf, middle}} {
		pair := pairFor(key, chain...)
		c := readCertificate(tlsSecret(string(pair["tls.crt"]), string(pair["tls.key"])), model.Ref{})
		if c.problem != nil || string(c.pair.Chain) != want {
			t.Errorf("got another order, or %v", c.problem)
		}
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	ref := model.Ref{Kind: model.Secret, Namespace: "shop", Name: "t"}
	docker := tlsSecret("", "")
	docker.Type = corev1.SecretTypeDockerConfigJson
	for want, secret := range map[string]*corev1.Secret{
		"Secret shop/t does not exist": nil,
		`Secret shop/t is of type "kubernetes.io/dockerconfigjson", not "kubernetes.io/tls"`: docker,
	} {
		if c := readCertificate(secret, ref); c.problem == nil || c.problem.message != want || c.resource != nil {
			t.Errorf("got %v, want %s", c.problem, want)
		}
	}
}

func tlsSecret(crt, key string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "t"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": []byte(crt), "tls.key": []byte(key)}}
}

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

// noKeyBytes fails if a text that people see holds a piece of the key.
func noKeyBytes(t *testing.T, c *certificate, key string) {
	t.Helper()
	text := ""
	if c.problem != nil {
		text = c.problem.message
	}
	for _, w := range c.warnings {
		text += w.message
	}
	for b, rest := pem.Decode([]byte(key)); b != nil; b, rest = pem.Decode(rest) {
		for i := 0; i+8 <= len(b.Bytes); i++ {
			piece := b.Bytes[i : i+8]
			for _, form := range []string{string(piece), hex.EncodeToString(piece), base64.StdEncoding.EncodeToString(piece)[:10]} {
				if strings.Contains(text, form) {
					t.Fatalf("key bytes in %q", text)
				}
			}
		}
	}
}

// oneCertificate is a configuration whose only server name has the certificate.
func oneCertificate(c *certificate) map[envoy.Name]*envoy.Resource {
	out := byName(Full(testConfig, newWorld()).Delta.Upserts)
	l := must(envoy.Encode(envoy.Listener, envoy.HTTPSName, envoy.HTTPSListener(testConfig.HTTPSPort, map[string]string{"a.test": c.resource.Name})))
	out[l.Key()], out[c.resource.Key()] = l, c.resource
	return out
}
