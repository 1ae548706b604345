package xds

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"fairway/envoy"
)

// authority signs certificates for tests.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) *authority {
	a := &authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate and its key as PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	k := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"fairway"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// credentials are those of a client that trusts server and is signed by a; a
// nil a has no certificate.
func (a *authority) credentials(server *authority) grpc.DialOption {
	pool := x509.NewCertPool()
	pool.AddCert(server.cert)
	config := &tls.Config{RootCAs: pool, ServerName: "fairway", MinVersion: tls.VersionTLS13}
	if a != nil {
		pair, err := tls.X509KeyPair(a.issue("client"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

func write(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func writeServer(t testing.TB, dir string, a *authority) {
	cert, key := a.issue("server")
	write(t, dir, "tls.crt", cert)
	write(t, dir, "tls.key", key)
}

func newTLSRig(t testing.TB) (r *rig, dir string, ca *authority) {
	dir, ca = t.TempDir(), newAuthority(t, "ca")
	writeServer(t, dir, ca)
	write(t, dir, "ca.crt", ca.pem)
	config, err := TLSFromDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	r = newRig(t, Options{}, ServerOptions{TLS: config})
	r.publish(world(t))
	return r, dir, ca
}

// tryAll calls a unary method, a stream and reflection, and returns their
// status codes.
func tryAll(t testing.TB, conn *grpc.ClientConn) (codesOf [3]codes.Code) {
	ctx := deadline(t)
	_, err := fetchers(conn)[envoy.Secret](ctx, &discoveryv3.DiscoveryRequest{})
	codesOf[0] = status.Code(err)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		_ = ads.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.Secret.URL()})
		_, err = ads.Recv()
	}
	codesOf[1] = status.Code(err)
	refl, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err == nil {
		_ = refl.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		_, err = refl.Recv()
	}
	codesOf[2] = status.Code(err)
	return codesOf
}

var (
	accepted = [3]codes.Code{codes.OK, codes.OK, codes.OK}
	refused  = [3]codes.Code{codes.Unavailable, codes.Unavailable, codes.Unavailable}
)

func TestTLSWhoGetsIn(t *testing.T) {
	t.Parallel()
	r, _, ca := newTLSRig(t)
	other := newAuthority(t, "other")
	for name, test := range map[string]struct {
		dial grpc.DialOption
		want [3]codes.Code
	}{
		"plaintext":      {grpc.WithTransportCredentials(insecure.NewCredentials()), refused},
		"no certificate": {(*authority)(nil).credentials(ca), refused},
		"wrong CA":       {other.credentials(ca), refused},
		"right CA":       {ca.credentials(ca), accepted},
	} {
		if got := tryAll(t, r.dial(test.dial)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	r, dir, ca := newTLSRig(t)
	next := newAuthority(t, "next")
	write(t, dir, "ca.crt", next.pem)
	if got := tryAll(t, r.dial(ca.credentials(ca))); got != refused {
		t.Errorf("the old client CA: %v", got)
	}
	if got := tryAll(t, r.dial(next.credentials(ca))); got != accepted {
		t.Errorf("the new client CA: %v", got)
	}
	cert, key := next.issue("server")
	write(t, dir, "tls.crt", cert) // half-way: the key does not belong to it
	if got := tryAll(t, r.dial(next.credentials(ca))); got != accepted {
		t.Errorf("while files are replaced: %v", got)
	}
	write(t, dir, "tls.key", key)
	if got := tryAll(t, r.dial(next.credentials(next))); got != accepted {
		t.Errorf("the new server certificate: %v", got)
	}
	if got := tryAll(t, r.dial(next.credentials(ca))); got != refused {
		t.Errorf("the old server certificate is still served: %v", got)
	}
}

func TestTLSFromDirReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), newAuthority(t, "ca")
	if _, err := TLSFromDir(dir); err == nil {
		t.Error("an empty directory is accepted")
	}
	writeServer(t, dir, ca)
	if _, err := TLSFromDir(dir); err == nil {
		t.Error("a directory without a CA is accepted")
	}
	write(t, dir, "ca.crt", []byte("no certificate"))
	if _, err := TLSFromDir(dir); err == nil {
		t.Error("a CA file without a certificate is accepted")
	}
}
