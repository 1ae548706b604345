package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"fairway/envoy"
)

// fallbackCertificate makes the self-signed certificate for server names that
// have none. Replicas that share the directory of the xDS certificate make the
// same one, so that an Envoy which moves between them receives nothing. Without
// a directory it is a new one at each start.
func fallbackCertificate(xdsTLSDir string) (envoy.Certificate, error) {
	seed := make([]byte, sha256.Size)
	if _, err := rand.Read(seed); err != nil {
		return envoy.Certificate{}, fmt.Errorf("making the fallback certificate: %w", err)
	}
	if xdsTLSDir != "" {
		var err error
		if seed, err = os.ReadFile(filepath.Join(xdsTLSDir, "tls.key")); err != nil {
			return envoy.Certificate{}, fmt.Errorf("reading the xDS key: %w", err)
		}
	}
	return selfSigned(seed)
}

// selfSigned derives a key from a secret seed and signs its certificate without
// randomness and without a clock.
func selfSigned(seed []byte) (envoy.Certificate, error) {
	key, err := deriveKey(seed)
	if err != nil {
		return envoy.Certificate{}, fmt.Errorf("deriving the fallback key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{Organization: []string{"Fairway"}, CommonName: "Fairway fallback certificate"},
		DNSNames:     []string{"ingress.local"},
		NotBefore:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2056, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	// No randomness: ECDSA then signs as RFC 6979 says.
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return envoy.Certificate{}, fmt.Errorf("signing the fallback certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return envoy.Certificate{}, fmt.Errorf("encoding the fallback key: %w", err)
	}
	return envoy.Certificate{
		Chain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// deriveKey takes the first derived number that is a key of P-256; almost every
// number is.
func deriveKey(seed []byte) (*ecdsa.PrivateKey, error) {
	for try := range 8 {
		scalar, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprint("fairway fallback certificate ", try), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("no key in 8 tries")
}
