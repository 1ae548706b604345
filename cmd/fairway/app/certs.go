package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The Secrets that the manifests mount.
const (
	serverSecret = "fairway-xds-server"
	clientSecret = "fairway-xds-client"
)

// maxDays is a hundred years, and far from where dates overflow.
const maxDays = 36525

type certsOptions struct {
	namespace string
	hosts     []string
	days      int
	output    string
}

func certsCommand() *cobra.Command {
	var o certsOptions
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Make the certificates with which Envoys and the control plane know each other",
		Long: `Make the certificates with which Envoys and the control plane know each other:
a new authority, whose key is thrown away, and one certificate for each side.
Both sides read them again when they change.`,
		Example: `  fairway certs | kubectl apply -f -
  fairway certs --host 127.0.0.1 -o ./certs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout(), time.Now()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.namespace, "namespace", "fairway-system", "namespace of the control plane")
	f.StringSliceVar(&o.hosts, "host", nil, "names and addresses of the control plane; by default those of the Service fairway in the namespace")
	f.IntVar(&o.days, "days", 1825, "days until the certificates expire")
	f.StringVarP(&o.output, "output", "o", "", "folder to write server/ and client/ to; without it, Secrets as YAML on standard output")
	return cmd
}

func (o certsOptions) run(w io.Writer, now time.Time) error {
	if len(o.hosts) == 0 {
		name := "fairway." + o.namespace
		o.hosts = []string{name, name + ".svc", name + ".svc.cluster.local"}
	}
	authority, err := newAuthority(now, o.days)
	if err != nil {
		return err
	}
	server, err := authority.issue("fairway", o.hosts, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return err
	}
	client, err := authority.issue("envoy", nil, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	if o.output == "" {
		return writeSecrets(w, o.namespace, server, client)
	}
	for name, files := range map[string]map[string][]byte{"server": server, "client": client} {
		if err := writeFolder(filepath.Join(o.output, name), files); err != nil {
			return err
		}
	}
	return nil
}

// authority signs certificates for as long as it is in memory.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(now time.Time, days int) (*authority, error) {
	if days < 1 || days > maxDays {
		return nil, fmt.Errorf("--days %d: want 1 to %d", days, maxDays)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: pkix.Name{CommonName: "Fairway xDS authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, days),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	return &authority{cert, key}, nil
}

func serialNumber() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return new(big.Int).SetBytes(b)
}

// issue returns the files of one side: tls.crt, tls.key and ca.crt.
func (a *authority) issue(name string, hosts []string, usage x509.ExtKeyUsage) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: pkix.Name{CommonName: name},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of %s: %w", name, err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		"ca.crt":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
	}, nil
}

func writeSecrets(w io.Writer, namespace string, server, client map[string][]byte) error {
	for _, s := range []struct {
		name string
		data map[string][]byte
	}{{serverSecret, server}, {clientSecret, client}} {
		text, err := yaml.Marshal(&corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name},
			Type:       corev1.SecretTypeTLS,
			Data:       s.data,
		})
		if err != nil {
			return fmt.Errorf("encoding Secret %s: %w", s.name, err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return fmt.Errorf("writing Secret %s: %w", s.name, err)
		}
	}
	return nil
}

func writeFolder(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("writing certificates: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing certificates: %w", err)
		}
	}
	return nil
}
