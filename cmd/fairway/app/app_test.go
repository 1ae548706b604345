package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fairway/envoy"
	"fairway/translator"
	"fairway/translator/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const objects = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
`

// start runs a control plane over a folder of manifests until the test ends.
func start(t *testing.T, manifests string) *App {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Manifests, c.XDSInsecure = dir, true
	c.XDSAddress, c.DebugAddress, c.AdminAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	a, err := New(c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	waitUntil(t, a.store.Ready)
	return a
}

func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func request(t *testing.T, a *App, method, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Admin.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAdminServer(t *testing.T) {
	a := start(t, objects)
	for _, c := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/readyz", 200, "ok"},
		{"GET", "/metrics", 200, `fairway_xds_resources{type="Cluster"} 1`},
		{"GET", "/debug/verify", 200, "ok"},
		{"GET", "/debug/streams", 200, "["},
		{"GET", "/debug/pprof/heap", 200, ""},
		{"POST", "/readyz", 405, ""},
		{"POST", "/debug/verify", 405, ""},
		{"DELETE", "/metrics", 405, ""},
		{"GET", "/", 404, ""},
		{"GET", "/debug/", 404, ""},
		{"GET", "/debug/nothing", 404, ""},
	} {
		status, body := request(t, a, c.method, c.path)
		if status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s %s: %d %q, want %d and %q", c.method, c.path, status, body, c.status, c.text)
		}
	}
}

func TestDebugPagesAreForThisMachineOnly(t *testing.T) {
	h := onlyLoopback(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for peer, want := range map[string]int{
		"127.0.0.1:1": 200, "[::1]:1": 200, "[::ffff:127.0.0.1]:1": 200, "10.0.0.1:1": 403, "[fd00::1]:1": 403, "nonsense": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/verify", nil)
		r.RemoteAddr = peer
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", peer, w.Code, want)
		}
	}
}

// A client that never ends its request does not keep the connection.
func TestUnfinishedBodiesAreCutOff(t *testing.T) {
	s := httptest.NewServer(boundBody(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 50*time.Millisecond))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// A panic in a translation starts it anew; what is gone meanwhile is removed.
func TestPipelineSurvivesAPanic(t *testing.T) {
	a := start(t, objects)
	p := a.pipeline
	p.mu.Lock()
	p.translator = new(translator.Translator) // has no maps: it panics on the first write
	p.mu.Unlock()
	web := model.Ref{Kind: model.Ingress, Namespace: "default", Name: "web"}
	if err := p.step(model.Dirty{Config: map[model.Ref]struct{}{web: {}}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if d := p.verify(); len(d) > 0 {
		t.Errorf("after the panic: %v", d)
	}
	if _, body := request(t, a, "GET", "/metrics"); !strings.Contains(body, "fairway_pipeline_panics_total 1") {
		t.Error("the panic was not counted")
	}
}

func TestVerifyFindsADifference(t *testing.T) {
	a := start(t, objects)
	a.pipeline.mu.Lock()
	a.pipeline.config.HTTPPort++
	a.pipeline.mu.Unlock()
	if d := a.pipeline.verify(); len(d) != 1 || !strings.HasPrefix(d[0], "Listener http: published ") {
		t.Errorf("got %v", d)
	}
}

// What an Envoy refuses is told on the Ingress that it was made for.
func TestRefusalIsTold(t *testing.T) {
	a := start(t, objects)
	told := make(chan []model.Report, 1)
	a.pipeline.mu.Lock()
	a.pipeline.tell = func(r []model.Report) { told <- r }
	a.pipeline.mu.Unlock()
	conn, err := grpc.NewClient(a.XDS.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: envoy.Cluster.URL()}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	request.ResponseNonce, request.ErrorDetail = response.GetNonce(), &rpcstatus.Status{Message: "no such thing"}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	want := []model.Report{{Object: model.Ref{Kind: model.Ingress, Namespace: "default", Name: "web"}, Reason: "RefusedByEnvoy", Severity: model.Error,
		Message: "Envoy refuses the Cluster made of Service default/web: no such thing"}}
	if got := <-told; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Replicas that share a key make the same certificate, and others another one.
func TestFallbackCertificateIsDerived(t *testing.T) {
	a, err := selfSigned([]byte("one seed"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := selfSigned([]byte("one seed"))
	other, _ := selfSigned([]byte("another"))
	if !bytes.Equal(a.Chain, b.Chain) || !bytes.Equal(a.Key, b.Key) {
		t.Error("the same seed gives two certificates")
	}
	if bytes.Equal(a.Key, other.Key) {
		t.Error("two seeds give one key")
	}
	pair, err := tls.X509KeyPair(a.Chain, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("ingress.local"); err != nil {
		t.Error(err)
	}
	if _, err := envoy.Encode(envoy.Secret, "x", envoy.CertificateSecret("x", a)); err != nil {
		t.Error(err)
	}
}

func TestCertsMakeBothSides(t *testing.T) {
	dir := t.TempDir()
	if err := (certsOptions{hosts: []string{"127.0.0.1", "fairway.test"}, days: 1, output: dir}).run(io.Discard, time.Now()); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	for _, side := range []struct {
		name  string
		usage x509.ExtKeyUsage
	}{{"server", x509.ExtKeyUsageServerAuth}, {"client", x509.ExtKeyUsageClientAuth}} {
		folder := filepath.Join(dir, side.name)
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
		if err != nil || !roots.AppendCertsFromPEM(ca) {
			t.Fatal("no authority", err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{side.usage}}); err != nil {
			t.Errorf("%s: %v", side.name, err)
		}
		if info, _ := os.Stat(filepath.Join(folder, "tls.key")); info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the key has mode %v", side.name, info.Mode())
		}
	}
}

func TestCertsWriteSecrets(t *testing.T) {
	var out bytes.Buffer
	if err := (certsOptions{namespace: "system", days: 1}).run(&out, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: fairway-xds-server", "name: fairway-xds-client", "namespace: system", "type: kubernetes.io/tls", "ca.crt:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if block, _ := pem.Decode(out.Bytes()); block != nil {
		t.Error("PEM in clear")
	}
}

func TestTranslateExitsOnErrors(t *testing.T) {
	run := func(manifests string) (stdout, stderr string, err error) {
		cmd := Command()
		var out, errOut bytes.Buffer
		cmd.SetIn(strings.NewReader(manifests))
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SetArgs([]string{"translate", "-f", "-"})
		err = cmd.Execute()
		return out.String(), errOut.String(), err
	}
	if out, stderr, err := run(objects); err != nil || !strings.Contains(out, "--- # Cluster default/web/80") || strings.Contains(out, "PRIVATE KEY") {
		t.Errorf("%v\n%s\n%s", err, stderr, out)
	}
	broken := strings.Replace(objects, "name: web, port", "name: nobody, port", 1)
	if _, stderr, err := run(broken); err == nil || !strings.Contains(stderr, "Error Ingress default/web ServiceNotFound") {
		t.Errorf("%v\n%s", err, stderr)
	}
	if _, stderr, err := run("no: [manifest"); err == nil || !strings.Contains(stderr, "Error ") {
		t.Errorf("%v\n%s", err, stderr)
	}
}
