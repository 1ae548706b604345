package translator

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// testCertificates returns the data of Secrets: two good ones, a mismatched
// pair, and garbage.
func testCertificates(t testing.TB) []map[string][]byte {
	a, b := newPair(t, "a.test", "*.a.test"), newPair(t, "b.test")
	return []map[string][]byte{
		a, b,
		{"tls.crt": a["tls.crt"], "tls.key": b["tls.key"]},
		{"tls.crt": []byte("no PEM"), "tls.key": nil},
	}
}

func newPair(t testing.TB, names ...string) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pairFor(t, key, names...)
}

func pairFor(t testing.TB, key crypto.Signer, names ...string) map[string][]byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}
