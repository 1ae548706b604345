package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority is a certificate authority for tests.
type Authority struct {
	CertPEM []byte

	cert *x509.Certificate
	key  crypto.Signer
}

// CertOptions says what a certificate should be like. The zero value is a
// valid ECDSA P-256 certificate for an hour.
type CertOptions struct {
	Hosts      []string           // DNS names and IP addresses; the first is also the common name
	CommonName string             // instead of the first host
	RSABits    int                // an RSA key of this size instead of ECDSA
	Curve      elliptic.Curve     // instead of P-256
	NotBefore  time.Time          // default: an hour ago
	NotAfter   time.Time          // default: in an hour
	Usage      []x509.ExtKeyUsage // default: server and client authentication
	CA         bool               // an intermediate authority
}

// Pair is a certificate chain with its private key, in PEM.
type Pair struct{ CertPEM, KeyPEM []byte }

// NewAuthority makes a root of its own.
func NewAuthority(t T, name string) *Authority {
	t.Helper()
	key := newKey(t, CertOptions{})
	a := &Authority{key: key}
	template := certTemplate(t, CertOptions{CommonName: name, CA: true, NotAfter: time.Now().Add(24 * time.Hour)})
	a.cert = sign(t, template, template, key.Public(), key)
	a.CertPEM = encodePEM("CERTIFICATE", a.cert.Raw)
	return a
}

// Issue makes a leaf certificate.
func (a *Authority) Issue(t T, o CertOptions) Pair {
	t.Helper()
	key := newKey(t, o)
	cert := sign(t, certTemplate(t, o), a.cert, key.Public(), a.key)
	return Pair{encodePEM("CERTIFICATE", cert.Raw), encodeKey(t, key)}
}

// Intermediate makes an authority below this one. A leaf's chain is the leaf
// followed by the intermediate's CertPEM.
func (a *Authority) Intermediate(t T, name string) *Authority {
	t.Helper()
	key := newKey(t, CertOptions{})
	cert := sign(t, certTemplate(t, CertOptions{CommonName: name, CA: true}), a.cert, key.Public(), a.key)
	return &Authority{CertPEM: encodePEM("CERTIFICATE", cert.Raw), cert: cert, key: key}
}

// Pool returns the authority as a set of roots.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// WriteDir issues a certificate and writes tls.crt, tls.key and ca.crt into a
// new folder.
func (a *Authority) WriteDir(t T, o CertOptions) string {
	t.Helper()
	dir := t.TempDir()
	a.Rewrite(t, dir, o)
	return dir
}

// Rewrite replaces the files that WriteDir has written, each by a rename.
func (a *Authority) Rewrite(t T, dir string, o CertOptions) {
	t.Helper()
	pair := a.Issue(t, o)
	for name, content := range map[string][]byte{"tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM, "ca.crt": a.CertPEM} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatalf("write certificate: %v", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatalf("write certificate: %v", err)
		}
	}
}

// SelfSigned makes a certificate that is its own issuer.
func SelfSigned(t T, o CertOptions) Pair {
	t.Helper()
	key := newKey(t, o)
	template := certTemplate(t, o)
	cert := sign(t, template, template, key.Public(), key)
	return Pair{encodePEM("CERTIFICATE", cert.Raw), encodeKey(t, key)}
}

// TLS returns the pair for use in a tls.Config.
func (p Pair) TLS(t T) tls.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(p.CertPEM, p.KeyPEM)
	if err != nil {
		t.Fatalf("key pair: %v", err)
	}
	return cert
}

func newKey(t T, o CertOptions) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch {
	case o.RSABits != 0:
		key, err = rsa.GenerateKey(rand.Reader, o.RSABits)
	case o.Curve != nil:
		key, err = ecdsa.GenerateKey(o.Curve, rand.Reader)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatalf("generate key: %v", err)
	}
	return key
}

func certTemplate(t T, o CertOptions) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatalf("serial number: %v", err)
	}
	c := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: o.CommonName},
		NotBefore:             o.NotBefore,
		NotAfter:              o.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           o.Usage,
		BasicConstraintsValid: true,
		IsCA:                  o.CA,
	}
	if c.Subject.CommonName == "" && len(o.Hosts) > 0 {
		c.Subject.CommonName = o.Hosts[0]
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if o.CA {
		c.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	} else if len(o.Usage) == 0 {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	for _, host := range o.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return c
}

func sign(t T, template, parent *x509.Certificate, public any, key crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatalf("sign certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("parse certificate: %v", err)
	}
	return cert
}

func encodeKey(t T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("encode key: %v", err)
	}
	return encodePEM("PRIVATE KEY", der)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
