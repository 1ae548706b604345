package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fairway/test/rig"
)

// ownWorld is a world of a test's own, for tests that kill parts of it.
type ownWorld struct {
	world
	pods  []*rig.Backend
	certs string // folder with server and client
	stats string // address of Envoy's statistics
}

// bootstrap writes the files that the Envoy starts with.
func (w *ownWorld) bootstrap(t *testing.T) string {
	t.Helper()
	w.stats = rig.Loopback(t)
	file := filepath.Join(t.TempDir(), "envoy.json")
	_, errOut, code := rig.RunFairway(t, "bootstrap", "--node-id", "own", "--xds-address", w.fairway.XDS,
		"--xds-tls-dir", w.certs+"/client", "--stats-address", w.stats, "-o", file)
	if code != 0 {
		t.Fatal(errOut)
	}
	return file
}

// newWorld starts everything as in production, with mutual TLS between Envoy
// and Fairway, and serves own.test.
func newWorld(t *testing.T) *ownWorld {
	t.Helper()
	w := &ownWorld{world: world{kube: startKube(t)}, certs: t.TempDir()}
	if _, errOut, code := rig.RunFairway(t, "certs", "--host", "127.0.0.1", "-o", w.certs); code != 0 {
		t.Fatal(errOut)
	}
	w.fairway = rig.StartFairway(t, "--kubeconfig", w.kube.Kubeconfig, "--xds-tls-dir", w.certs+"/server")
	file := w.bootstrap(t)
	w.envoy = rig.StartEnvoy(t, rig.EnvoyOptions{BootstrapFile: file, AdminSocket: filepath.Join(filepath.Dir(file), "admin.sock")})
	w.pods = rig.StartBackends(t, "web", 1)
	w.kube.ApplyObjects(t, rig.Service("default", "web"), rig.SliceOf("default", "web", w.pods...))
	w.kube.Apply(t, ingress("default", "web", "own.test/ web:80"))
	w.client(t).Expect(t, wait, "http://own.test/", 200, "web")
	return w
}

// moveEndpoint replaces the endpoint and waits until Envoy uses the new one.
func (w *ownWorld) moveEndpoint(t *testing.T) {
	t.Helper()
	w.pods = rig.StartBackends(t, "web", 1)
	w.kube.ApplyObjects(t, rig.SliceOf("default", "web", w.pods...))
	rig.Eventually(t, wait, func() error {
		return sameMembers(w.envoy.Clusters(t)["default/web/80"], map[string]bool{w.pods[0].Address: true})
	}, "Envoy uses the new endpoint")
}

// updates counts what Envoy was sent, by type.
const updates = `(^|\.)(lds|cds|eds|rds|sds)\..*update_success|listener_manager\.lds\.update_success|listener_manager\.listener_(added|modified|removed)|cluster_manager\.(cds\.update_success|cluster_(added|modified|removed))|update_rejected`

// Fairway is killed and comes back: traffic goes on, the Envoy is sent nothing
// that it has, and changes made meanwhile arrive (XP-43).
func TestFairwayIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	load := w.steady(t, "http://own.test/")
	for range 3 {
		before := w.envoy.Stats(t, updates)
		w.fairway.Kill()
		w.fairway.Restart(t)
		w.fairway.WaitReady(t)
		w.waitConnected(t)
		w.unchanged(t, before, updates)
	}
	w.fairway.Kill()
	w.kube.Apply(t, ingress("default", "later", "later.test/ web:80"))
	w.kube.Apply(t, ingress("default", "gone", "gone.test/ web:80"))
	w.kube.Delete(t, ingress("default", "gone", "gone.test/ web:80"))
	w.fairway.Restart(t)
	w.client(t).Expect(t, wait, "http://later.test/", 200, "web")
	t.Log(load.MustBeClean(t))
}

// waitConnected waits until the Envoy's stream is back and all its types have
// been asked for again.
func (w *ownWorld) waitConnected(t *testing.T) {
	t.Helper()
	rig.Eventually(t, 30*time.Second, func() error {
		if n := metric(t, w.fairway, "fairway_xds_streams", "protocol", "delta"); n != 1 {
			return fmt.Errorf("%v streams", n)
		}
		if n := w.envoy.Stat(t, "control_plane.connected_state"); n != 1 {
			return fmt.Errorf("Envoy is not connected")
		}
		return nil
	}, "Envoy is connected again")
}

// metric returns one sample of Fairway's /metrics.
func metric(t *testing.T, f *rig.Fairway, name, label, value string) float64 {
	t.Helper()
	family := f.Metrics(t)[name]
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// The API server goes away: traffic and Fairway go on, nothing is withdrawn,
// and after its return changes arrive again.
func TestAPIServerIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	load := w.steady(t, "http://own.test/")
	before := w.envoy.Stats(t, updates)
	w.kube.KillAPIServer()
	rig.Consistently(t, 3*time.Second, w.fairway.Ready, "Fairway stays ready without an API server")
	w.unchanged(t, before, updates)
	w.kube.StartAPIServer(t)
	w.kube.Apply(t, ingress("default", "later", "later.test/ web:80"))
	rig.Eventually(t, time.Minute, func() error { return w.client(t).MustGet(t, "http://later.test/").Check(200, "web") }, "a change arrives after the API server's return")
	t.Log(load.MustBeClean(t))
}

// Fairway starts while there is no API server: it is not ready, answers no
// Envoy, and recovers by itself.
func TestStartWithoutAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	load := w.steady(t, "http://own.test/")
	w.kube.KillAPIServer()
	w.fairway.Kill()
	w.fairway.Restart(t)
	rig.Consistently(t, 2*time.Second, func() error {
		if err := w.fairway.Alive(); err != nil {
			return err
		}
		if w.fairway.Ready() == nil {
			return fmt.Errorf("ready without having read anything")
		}
		return nil
	}, "Fairway runs and is not ready")
	w.kube.StartAPIServer(t)
	rig.Eventually(t, time.Minute, w.fairway.Ready, "Fairway becomes ready")
	w.waitConnected(t)
	w.moveEndpoint(t)
	t.Log(load.MustBeClean(t))
}

// A new Envoy is ready only with everything it needs, and then serves at once.
func TestEnvoyStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 50 {
		w.kube.Apply(t, ingress("default", fmt.Sprintf("many-%d", i), fmt.Sprintf("many-%d.test/ web:80", i)))
	}
	w.client(t).Expect(t, wait, "http://many-49.test/", 200, "web")
	for range 3 {
		w.envoy.Kill()
		w.envoy.Restart(t)
		w.envoy.WaitReady(t)
		for i := range 50 {
			if err := w.client(t).MustGet(t, fmt.Sprintf("http://many-%d.test/", i)).Check(200, "web"); err != nil {
				t.Fatalf("a ready Envoy: many-%d.test: %v", i, err)
			}
		}
	}
}

// An Envoy without a control plane is not ready and serves nothing.
func TestEnvoyStartsWithoutFairway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.envoy.Kill()
	w.fairway.Kill()
	w.envoy.Restart(t)
	rig.Consistently(t, 2*time.Second, func() error {
		if w.envoy.Ready() == nil {
			return fmt.Errorf("Envoy is ready without a configuration")
		}
		return nil
	}, "Envoy is not ready")
	w.fairway.Restart(t)
	w.envoy.WaitReady(t)
	if err := w.client(t).MustGet(t, "http://own.test/").Check(200, "web"); err != nil {
		t.Fatal(err)
	}
}

// A second replica serves the same bytes and versions.
func TestReplicasAreEqual(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.ApplyObjects(t, rig.TLSSecret("default", "own", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"own.test"}})))
	for i := range 20 {
		w.kube.Apply(t, ingress("default", fmt.Sprintf("many-%d", i), fmt.Sprintf("many-%d.test/x web:80", i%7), "*.wild.test/ web:80"))
	}
	second := rig.StartFairway(t, "--kubeconfig", w.kube.Kubeconfig, "--xds-tls-dir", w.certs+"/server",
		"--http-port", fmt.Sprint(w.fairway.HTTPPort), "--https-port", fmt.Sprint(w.fairway.HTTPSPort))
	rig.Eventually(t, wait, func() error {
		if d := cmp.Diff(snapshot(t, w.fairway), snapshot(t, second)); d != "" {
			return errors.New(d)
		}
		return nil
	}, "two replicas serve the same")
}

// snapshot returns the versions and the content of what a Fairway serves.
func snapshot(t *testing.T, f *rig.Fairway) map[string]string {
	t.Helper()
	conn, err := grpc.NewClient(f.Debug, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := map[string]string{}
	for _, method := range []string{
		"/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters", "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints",
		"/envoy.service.listener.v3.ListenerDiscoveryService/FetchListeners", "/envoy.service.route.v3.RouteDiscoveryService/FetchRoutes",
	} {
		response := &discoveryv3.DiscoveryResponse{}
		if err := conn.Invoke(t.Context(), method, &discoveryv3.DiscoveryRequest{}, response); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		h := sha256.New()
		for _, r := range response.GetResources() {
			h.Write(r.GetValue())
		}
		out[method] = fmt.Sprintf("%d resources, version %s, hash %x", len(response.GetResources()), response.GetVersionInfo(), h.Sum(nil))
	}
	return out
}

// Of Envoy's admin interface the statistics address shows two pages, for GET,
// and nothing else; the rest is behind a socket of mode 0600.
func TestStatisticsAddressShowsTwoPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := rig.NewClient(t, rig.ClientOptions{HTTP: w.stats})
	for path, text := range map[string]string{"/ready": "LIVE", "/stats/prometheus": "envoy_server_live"} {
		reply := c.MustGet(t, "http://stats.test"+path)
		if reply.StatusCode != 200 || !strings.Contains(string(reply.Body), text) {
			t.Errorf("GET %s: %d without %q", path, reply.StatusCode, text)
		}
	}
	for _, call := range []string{
		"GET /", "GET /config_dump", "GET /certs", "GET /clusters", "GET /stats", "GET /server_info", "GET /stats/prometheus/../../config_dump",
		"GET //ready", "POST /quitquitquit", "POST /healthcheck/fail", "GET /healthcheck/fail", "POST /ready", "HEAD /ready", "POST /stats/prometheus",
	} {
		method, path, _ := strings.Cut(call, " ")
		reply, err := c.Do(t.Context(), method, "http://stats.test"+path, nil)
		if err != nil || reply.StatusCode != 404 {
			t.Errorf("%s: %v %v, want 404", call, reply, err)
		}
	}
	info, err := os.Stat(w.envoy.AdminSocket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the admin socket: %v %v", info, err)
	}
}

// Certificates between Envoy and Fairway are replaced while both run: the next
// connection uses the new ones, and no request and no update is lost.
func TestXDSCertificatesAreReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	load := w.steady(t, "http://own.test/")
	fresh := t.TempDir()
	if _, errOut, code := rig.RunFairway(t, "certs", "--host", "127.0.0.1", "-o", fresh); code != 0 {
		t.Fatal(errOut)
	}
	// First both sides trust both authorities, then each gets its new pair.
	for _, side := range []string{"server", "client"} {
		both := append(read(t, w.certs, side, "ca.crt"), read(t, fresh, side, "ca.crt")...)
		replace(t, w.certs, side, "ca.crt", both)
	}
	for _, side := range []string{"server", "client"} {
		for _, name := range []string{"tls.crt", "tls.key"} {
			replace(t, w.certs, side, name, read(t, fresh, side, name))
		}
	}
	w.moveEndpoint(t)
	// The stream is cut, so that Envoy has to connect with what is there now;
	// the old authority is gone by then.
	for _, side := range []string{"server", "client"} {
		replace(t, w.certs, side, "ca.crt", read(t, fresh, side, "ca.crt"))
	}
	w.fairway.Kill()
	w.fairway.Restart(t)
	w.fairway.WaitReady(t)
	w.waitConnected(t)
	w.moveEndpoint(t)
	t.Log(load.MustBeClean(t))
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// replace puts a new file in the place of an old one, by a rename.
func replace(t *testing.T, dir, side, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, side, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
