package translator

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairway/envoy"
	"fairway/translator/model"
)

// certificate is what a Secret gives Envoy, or why it gives nothing.
type certificate struct {
	ref      model.Ref
	source   *corev1.Secret // identity of the object it was made from
	pair     envoy.Certificate
	leaf     *x509.Certificate
	problem  *problem
	warnings []problem
	resource *envoy.Resource
}

type problem struct{ reason, message string }

// minRSABits is the smallest RSA key that Envoy takes.
const minRSABits = 2048

// certificate returns the certificate of a Secret, reading each version of it
// once however many Ingresses name it.
func (t *Translator) certificate(src model.Source, ref model.Ref) *certificate {
	secret := src.Secret(ref)
	if c := t.certificates[ref]; c != nil && c.source == secret {
		return c
	}
	c := readCertificate(secret, ref)
	t.certificates[ref] = c
	return c
}

// readCertificate checks all that Envoy would refuse, since a refused Secret
// takes others of the same message with it, and writes the PEM anew, leaf
// first, since people's files come with extra blocks, line ends and text.
func readCertificate(secret *corev1.Secret, ref model.Ref) *certificate {
	c := &certificate{ref: ref, source: secret}
	name := ref.String()
	if secret == nil {
		c.problem = &problem{"SecretNotFound", name + " does not exist"}
		return c
	}
	if secret.Type != corev1.SecretTypeTLS {
		c.problem = &problem{"SecretNotTLS", fmt.Sprintf("%s is of type %q, not %q", name, secret.Type, corev1.SecretTypeTLS)}
		return c
	}
	read := func() error { return c.read(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]) }
	if err := attempt(read); err != nil {
		c.problem = &problem{"SecretInvalid", fmt.Sprintf("%s cannot be used: %v", name, err)}
		return c
	}
	if !c.named() {
		c.warnings = append(c.warnings, problem{"CertificateWithoutNames", name + " has a certificate without subject alternative names, which no client accepts"})
	}
	r, err := envoy.Encode(envoy.Secret, envoy.SecretName(ref.Namespace, ref.Name),
		envoy.CertificateSecret(envoy.SecretName(ref.Namespace, ref.Name), c.pair), name)
	if err != nil {
		c.problem = &problem{"SecretInvalid", name + " cannot be encoded"}
		return c
	}
	c.resource = r
	return c
}

func (c *certificate) read(chainPEM, keyPEM []byte) error {
	chain, err := parseChain(chainPEM)
	if err != nil {
		return err
	}
	keyBlock, key, err := parseKey(keyPEM)
	if err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	if chain = leafFirst(chain, key); chain == nil {
		return fmt.Errorf("tls.key does not belong to any certificate in tls.crt")
	}
	if err := checkLeaf(chain[0]); err != nil {
		return err
	}
	var b bytes.Buffer
	for _, cert := range chain {
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}); err != nil {
			return err
		}
	}
	c.leaf = chain[0]
	c.pair = envoy.Certificate{Chain: b.Bytes(), Key: pem.EncodeToMemory(keyBlock)}
	if _, err := tls.X509KeyPair(c.pair.Chain, c.pair.Key); err != nil {
		return fmt.Errorf("tls.crt and tls.key do not make a pair")
	}
	return nil
}

func parseChain(data []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in tls.crt cannot be read: %w", len(chain)+1, err)
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("tls.crt holds no certificate in PEM")
	}
	return chain, nil
}

var (
	errEncryptedKey  = errors.New("tls.key is encrypted")
	errUnreadableKey = errors.New("the private key in tls.key cannot be read, or its kind or curve is not supported")
)

// parseKey returns the first private key, and the same key encoded anew: Go
// passes over parts of a key that Envoy reads, such as a public key that belongs
// to another one. Its errors never quote the input.
func parseKey(data []byte) (*pem.Block, crypto.Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, nil, errEncryptedKey
		default:
			continue // EC PARAMETERS, or a certificate in the same file
		}
		if block.Headers["DEK-Info"] != "" {
			return nil, nil, errEncryptedKey
		}
		signer, ok := key.(crypto.Signer)
		if err != nil || !ok {
			return nil, nil, errUnreadableKey
		}
		der, err := x509.MarshalPKCS8PrivateKey(signer)
		if err != nil {
			return nil, nil, errUnreadableKey
		}
		return &pem.Block{Type: "PRIVATE KEY", Bytes: der}, signer, nil
	}
	return nil, nil, fmt.Errorf("tls.key holds no private key in PEM")
}

func checkKey(key crypto.Signer) error {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < minRSABits {
			return fmt.Errorf("the RSA key has %d bits, less than %d", k.N.BitLen(), minRSABits)
		}
		if len(k.Primes) != 2 {
			return fmt.Errorf("the RSA key has %d primes: only keys with 2 are supported", len(k.Primes))
		}
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P224() {
			return fmt.Errorf("the curve P-224 is not supported: use P-256")
		}
	case ed25519.PrivateKey:
	default:
		return fmt.Errorf("keys of type %T are not supported", key)
	}
	return nil
}

var (
	oidCommonName = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidTLSFeature = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}
)

// statusRequest is the TLS feature "must staple" of RFC 7633.
const statusRequest = 5

// checkLeaf returns why Envoy would refuse a certificate whose key is fine.
func checkLeaf(c *x509.Certificate) error {
	switch {
	case !nameable(c):
		return fmt.Errorf("the certificate has an empty common name, or neither a common name nor subject alternative names")
	case c.PublicKeyAlgorithm == x509.ECDSA && extension(c, oidKeyUsage) != nil && c.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return fmt.Errorf("the key usage of the certificate does not allow digital signatures")
	case mustStaple(c):
		return fmt.Errorf("the certificate demands a stapled OCSP response, which a Secret cannot hold")
	}
	return nil
}

// nameable reports whether Envoy finds a name in a certificate: the first common
// name counts, and if there is one it must not be empty.
func nameable(c *x509.Certificate) bool {
	for _, a := range c.Subject.Names {
		if a.Type.Equal(oidCommonName) {
			return a.Value != ""
		}
	}
	return len(c.DNSNames)+len(c.IPAddresses)+len(c.URIs) > 0
}

func mustStaple(c *x509.Certificate) bool {
	value := extension(c, oidTLSFeature)
	var features []int
	if _, err := asn1.Unmarshal(value, &features); value != nil && err != nil {
		return true // unreadable: who set it wanted something
	}
	return slices.Contains(features, statusRequest)
}

// extension returns the content of an extension; nil if there is none.
func extension(c *x509.Certificate, oid asn1.ObjectIdentifier) []byte {
	for _, e := range c.Extensions {
		if e.Id.Equal(oid) {
			return e.Value
		}
	}
	return nil
}

// leafFirst orders a chain: the certificate of the key, then each one's issuer;
// what does not belong keeps its place behind. It returns nil if no certificate
// belongs to the key.
func leafFirst(chain []*x509.Certificate, key crypto.Signer) []*x509.Certificate {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok {
		return nil
	}
	var out []*x509.Certificate
	rest := chain
	next := func(belongs func(*x509.Certificate) bool) bool {
		for i, c := range rest {
			if belongs(c) {
				out = append(out, c)
				rest = append(append([]*x509.Certificate{}, rest[:i]...), rest[i+1:]...)
				return true
			}
		}
		return false
	}
	if !next(func(c *x509.Certificate) bool { return public.Equal(c.PublicKey) }) {
		return nil
	}
	for next(func(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, out[len(out)-1].RawIssuer) }) {
	}
	return append(out, rest...)
}

// named reports whether the certificate says at all which hosts it is for.
func (c *certificate) named() bool { return len(c.leaf.DNSNames)+len(c.leaf.IPAddresses) > 0 }

// covers reports whether the certificate is valid for a host, which may be a
// wildcard.
func (c *certificate) covers(host string) bool {
	if host == catchAll {
		return false
	}
	return slices.Contains(c.leaf.DNSNames, host) || c.leaf.VerifyHostname(host) == nil
}
