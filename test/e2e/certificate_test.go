package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/test/rig"
)

// brokenTLS creates a host whose Secret is unusable, beside a good one, and
// expects that the broken one gets the default certificate, its owner a reason,
// and the good one a rotation. It returns the name of the broken Secret's
// namespace and host.
func brokenTLS(t *testing.T, name string, secret *corev1.Secret, reason, text string) {
	t.Helper()
	good, host := name+"-good.test", name+".test"
	tlsSite(t, name+"-good", good)
	lab.kube.Namespace(t, name)
	pods := rig.StartBackends(t, "web", 1)
	lab.kube.ApplyObjects(t, rig.Service(name, "web"), rig.SliceOf(name, "web", pods...))
	if secret != nil {
		secret.Namespace, secret.Name = name, "cert"
		lab.kube.ApplyObjects(t, secret)
	}
	lab.kube.Apply(t, tlsIngress(name, "web", "cert", []string{host}, host+"/ web:80"))
	client(t).Expect(t, wait, "https://"+host+"/", 200, "web")
	if got := presented(t, httpsAddress(), host); got != fallbackName {
		t.Errorf("%s shows %q", host, got)
	}
	reported(t, name, "web", reason, text)
	rotated := rig.SelfSigned(t, rig.CertOptions{CommonName: "rotated " + good, Hosts: []string{good}})
	lab.kube.ApplyObjects(t, rig.TLSSecret(name+"-good", "cert", rotated))
	shows(t, soon, httpsAddress(), good, "rotated "+good)
	tlsSite(t, name+"-later", name+"-later.test")
}

// heals puts a good Secret in the place of a broken one and expects that it is
// served without delay, and that the redirect stays.
func heals(t *testing.T, name string) {
	t.Helper()
	host := name + ".test"
	lab.kube.ApplyObjects(t, rig.TLSSecret(name, "cert", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{host}})))
	shows(t, soon, httpsAddress(), host, host)
	if n := refusals(t, lab.envoy); len(n) > 0 {
		t.Errorf("Envoy refused %v", n)
	}
}

// A Secret that cannot be used harms its own hosts alone, which get the default
// certificate until it is repaired (A02, A17, A26).
func TestBrokenCertificates(t *testing.T) {
	t.Parallel()
	pair := func(o rig.CertOptions) rig.Pair {
		o.Hosts = []string{"broken.test"}
		return rig.SelfSigned(t, o)
	}
	one, other := pair(rig.CertOptions{}), pair(rig.CertOptions{})
	secret := func(cert, key []byte) *corev1.Secret {
		return rig.TLSSecret("", "", rig.Pair{CertPEM: cert, KeyPEM: key})
	}
	small := pair(rig.CertOptions{RSABits: 1024})
	for name, c := range map[string]struct {
		secret *corev1.Secret
		reason string
		text   string
	}{
		"missing":   {nil, "SecretNotFound", "Secret missing/cert does not exist"},
		"mismatch":  {secret(one.CertPEM, other.KeyPEM), "SecretInvalid", "tls.key does not belong to any certificate in tls.crt"},
		"hollow":    {secret(nil, nil), "SecretInvalid", "tls.crt holds no certificate"},
		"garbage":   {secret([]byte("garbage"), []byte("garbage")), "SecretInvalid", "tls.crt holds no certificate"},
		"no-key":    {secret(one.CertPEM, one.CertPEM), "SecretInvalid", "tls.key holds no private key"},
		"torn":      {secret(one.CertPEM[:200], one.KeyPEM), "SecretInvalid", "tls.crt holds no certificate"},
		"small-rsa": {secret(small.CertPEM, small.KeyPEM), "SecretInvalid", "1024 bits"},
		"swapped":   {secret(one.KeyPEM, one.CertPEM), "SecretInvalid", "tls.crt holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			brokenTLS(t, name, c.secret, c.reason, c.text)
			heals(t, name)
		})
	}
}

// A Secret of another type is said to be one (A27). Its type never changes, so
// it is replaced.
func TestSecretOfAnotherType(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	}
	brokenTLS(t, "docker", secret, "SecretNotTLS", `Secret docker/cert is of type "kubernetes.io/dockerconfigjson"`)
	lab.kube.DeleteObjects(t, secret)
	heals(t, "docker")
}

// A broken version of a Secret that was good takes it out of use, not the
// others, and not the connections that are open.
func TestCertificateBreaksLater(t *testing.T) {
	t.Parallel()
	tlsSite(t, "later", "later.test")
	tlsSite(t, "later-good", "later-good.test")
	conn, _, err := client(t).WebSocket(deadline(t), "https://later-good.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pair := rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"later.test"}})
	lab.kube.ApplyObjects(t, rig.TLSSecret("later", "cert", rig.Pair{CertPEM: pair.CertPEM, KeyPEM: []byte("garbage")}))
	reported(t, "later", "web", "SecretInvalid", "tls.key holds no private key")
	client(t).Expect(t, wait, "https://later-good.test/", 200, "web")
	echoes(t, conn, []byte("still there"))
	heals(t, "later")
}

// A missing Secret delays nobody: what comes with it and after it is served at
// once, and it itself as soon as it exists (t3, A17).
func TestMissingSecretDelaysNobody(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "absent")
	lab.kube.ApplyObjects(t, rig.Service("absent", "web"), rig.SliceOf("absent", "web", rig.StartBackends(t, "web", 1)...))
	pair := rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"present.test"}})
	lab.kube.ApplyObjects(t, rig.TLSSecret("absent", "present", pair))
	start := time.Now()
	lab.kube.Apply(t, tlsIngress("absent", "absent", "absent", []string{"absent.test"}, "absent.test/ web:80"))
	lab.kube.Apply(t, tlsIngress("absent", "present", "present", []string{"present.test"}, "present.test/ web:80"))
	shows(t, soon, httpsAddress(), "present.test", "present.test")
	client(t).Expect(t, soon, "https://present.test/", 200, "web")
	if took := time.Since(start); took > soon {
		t.Errorf("it took %v", took)
	}
	reported(t, "absent", "absent", "SecretNotFound", "absent/absent")
	lab.kube.ApplyObjects(t, rig.TLSSecret("absent", "absent", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"absent.test"}})))
	shows(t, soon, httpsAddress(), "absent.test", "absent.test")
}

// Files as people have them are served: the chain in any order, more blocks than
// needed, other line ends, text around (A28, A29, A30).
func TestCertificateForms(t *testing.T) {
	t.Parallel()
	root := rig.NewAuthority(t, "Forms root")
	middle := root.Intermediate(t, "Forms intermediate")
	leaf := middle.Issue(t, rig.CertOptions{Hosts: []string{"*.forms.test"}})
	rsa := root.Issue(t, rig.CertOptions{Hosts: []string{"*.forms.test"}, RSABits: 2048})
	expired := root.Issue(t, rig.CertOptions{Hosts: []string{"*.forms.test"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour)})
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	crlf := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}})
	for name, c := range map[string]struct {
		cert, key []byte
		chain     int // certificates that are shown; the leaf comes first
	}{
		"in-order":          {join(leaf.CertPEM, middle.CertPEM), leaf.KeyPEM, 2},
		"issuer-first":      {join(middle.CertPEM, leaf.CertPEM), leaf.KeyPEM, 2},
		"root-first":        {join(root.CertPEM, middle.CertPEM, leaf.CertPEM), leaf.KeyPEM, 3},
		"parameters":        {join(leaf.CertPEM, middle.CertPEM), join(parameters, sec1(t, leaf.KeyPEM)), 2},
		"crlf":              {crlf(join(leaf.CertPEM, middle.CertPEM)), crlf(leaf.KeyPEM), 2},
		"no-final-newline":  {bytes.TrimSpace(join(leaf.CertPEM, middle.CertPEM)), bytes.TrimSpace(leaf.KeyPEM), 2},
		"text-around":       {join([]byte("subject=CN = x\n\n"), leaf.CertPEM, []byte("\n\n# issuer\n"), middle.CertPEM, []byte("end\n")), join([]byte("Bag Attributes\n"), leaf.KeyPEM), 2},
		"key-in-both-files": {join(leaf.CertPEM, middle.CertPEM, leaf.KeyPEM), join(leaf.CertPEM, leaf.KeyPEM), 2},
		"rsa":               {rsa.CertPEM, rsa.KeyPEM, 1},
		"expired":           {expired.CertPEM, expired.KeyPEM, 1},
	} {
		t.Run(name, func(t *testing.T) {
			host, namespace := name+".forms.test", "forms-"+name
			site(t, namespace, host, 1)
			lab.kube.ApplyObjects(t, rig.TLSSecret(namespace, "cert", rig.Pair{CertPEM: c.cert, KeyPEM: c.key}))
			lab.kube.Apply(t, tlsIngress(namespace, "web", "cert", []string{host}, host+"/ web:80"))
			shows(t, wait, httpsAddress(), host, "*.forms.test")
			conn, err := handshake(t, httpsAddress(), &tls.Config{ServerName: host})
			if err != nil {
				t.Fatal(err)
			}
			shown := conn.ConnectionState().PeerCertificates
			if len(shown) != c.chain {
				t.Errorf("%d certificates are shown, want %d", len(shown), c.chain)
			}
			if name != "expired" {
				verify(t, root, shown, host)
			}
		})
	}
	if n := refusals(t, lab.envoy); len(n) > 0 {
		t.Errorf("Envoy refused %v", n)
	}
}

// verify checks a chain as a client does.
func verify(t *testing.T, root *rig.Authority, chain []*x509.Certificate, host string) {
	t.Helper()
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: root.Pool(), Intermediates: between}); err != nil {
		t.Error(err)
	}
}

// sec1 writes an ECDSA key as openssl ecparam does.
func sec1(t *testing.T, key []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(key)
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(ecdsaKey(t, parsed))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// Secrets of one name in two namespaces are two (A31).
func TestSecretsOfOneName(t *testing.T) {
	t.Parallel()
	tlsSite(t, "one-a", "one-a.test")
	tlsSite(t, "one-b", "one-b.test")
	for i := range 3 {
		name := fmt.Sprintf("rotation %d", i)
		lab.kube.ApplyObjects(t, rig.TLSSecret("one-a", "cert", rig.SelfSigned(t, rig.CertOptions{CommonName: name, Hosts: []string{"one-a.test"}})))
		shows(t, soon, httpsAddress(), "one-a.test", name)
		if got := presented(t, httpsAddress(), "one-b.test"); got != "one-b.test" {
			t.Fatalf("the other host shows %q", got)
		}
	}
}

// Where two Ingresses claim a host, the certificate is that of the older one, or
// of the first by name if both are of one second; the other's when that goes.
func TestWhoseCertificate(t *testing.T) {
	t.Parallel()
	tlsSite(t, "whose-a", "whose.test")
	lab.kube.Namespace(t, "whose-b")
	lab.kube.ApplyObjects(t, rig.Service("whose-b", "web"), rig.SliceOf("whose-b", "web", rig.StartBackends(t, "web", 1)...),
		rig.TLSSecret("whose-b", "cert", rig.SelfSigned(t, rig.CertOptions{CommonName: "younger", Hosts: []string{"whose.test", "other.whose.test"}})))
	lab.kube.Apply(t, tlsIngress("whose-b", "web", "cert", []string{"whose.test", "other.whose.test"}, "whose.test/ web:80", "other.whose.test/ web:80"))
	shows(t, wait, httpsAddress(), "other.whose.test", "younger")
	if got := presented(t, httpsAddress(), "whose.test"); got != "whose.test" {
		t.Errorf("the host shows %q", got)
	}
	lab.kube.Delete(t, tlsIngress("whose-a", "web", "cert", []string{"whose.test"}, "whose.test/ web:80"))
	shows(t, soon, httpsAddress(), "whose.test", "younger")
}

func ecdsaKey(t *testing.T, key any) *ecdsa.PrivateKey {
	t.Helper()
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("a key of type %T", key)
	}
	return k
}
