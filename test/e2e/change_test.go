package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"fairway/test/rig"
)

// wait bounds how long a change may take on a busy machine; it is no promise of
// speed.
const wait = 15 * time.Second

// steady starts load of every kind on a host.
func (w *world) steady(t *testing.T, url string) *rig.Load {
	t.Helper()
	w.client(t).Expect(t, wait, url, 200, "")
	return rig.StartLoad(t, rig.LoadOptions{
		HTTP: fmt.Sprintf("%s:%d", w.envoy.IP, w.fairway.HTTPPort), URL: url,
		NewConnections: 100, KeepAlive: 5, HTTP2: 3, WebSockets: 2, Events: 1,
	})
}

// Objects come, change and go, while nothing of a neighbour, and nothing of the
// changed host itself, answers with an error.
func TestChangesLoseNoRequest(t *testing.T) { lab.changes(t) }

// The same with the state-of-the-world protocol.
func TestChangesLoseNoRequestSotW(t *testing.T) {
	t.Parallel()
	w := &world{kube: startKube(t)}
	w.fairway = rig.StartFairway(t, "--kubeconfig", w.kube.Kubeconfig)
	bootstrap := bytes.Replace(w.fairway.Bootstrap(t, "sotw"), []byte(`"DELTA_GRPC"`), []byte(`"GRPC"`), 1)
	w.envoy = w.fairway.StartEnvoy(t, "sotw", rig.EnvoyOptions{Bootstrap: bootstrap})
	w.changes(t)
	if n := metric(t, w.fairway, "fairway_xds_streams", "protocol", "sotw"); n != 1 {
		t.Errorf("%v SotW streams", n)
	}
}

// steadily are statistics that no change of routes, clusters or endpoints moves.
const steadily = "listener_modified|listeners_draining|update_rejected"

func (w *world) changes(t *testing.T) {
	w.site(t, "neighbour", "neighbour.test", 2)
	w.site(t, "changing", "changing.test", 2)
	loads := []*rig.Load{w.steady(t, "http://neighbour.test/"), w.steady(t, "http://changing.test/")}
	before := w.envoy.Stats(t, steadily)
	t.Run("new hosts", w.newHosts)
	t.Run("a host moves between services", w.hostMoves)
	t.Run("endpoints are replaced one by one", func(sub *testing.T) { w.endpointsRoll(sub, t) })
	t.Run("a service port comes and goes", w.portsChange)
	t.Run("a cluster changes", w.clusterChanges)
	for _, l := range loads {
		t.Log(l.MustBeClean(t))
	}
	w.unchanged(t, before, steadily)
}

// unchanged compares statistics of Envoy with what they were.
func (w *world) unchanged(t *testing.T, before map[string]int64, filter string) {
	t.Helper()
	for name, n := range w.envoy.Stats(t, filter) {
		if n != before[name] {
			t.Errorf("%s went from %d to %d", name, before[name], n)
		}
	}
}

// newHosts creates hosts one after another and polls each from the start: 404,
// then 200, never 503 (XO-5).
func (w *world) newHosts(t *testing.T) {
	c := w.client(t)
	for i := range 20 {
		namespace, host := fmt.Sprintf("new-%d", i), fmt.Sprintf("new-%d.test", i)
		w.kube.Namespace(t, namespace)
		pods := rig.StartBackends(t, "web", 1)
		w.kube.ApplyObjects(t, rig.Service(namespace, "web"), rig.SliceOf(namespace, "web", pods...))
		w.kube.Apply(t, ingress(namespace, "web", host+"/ web:80"))
		rig.Eventually(t, wait, func() error {
			reply := c.MustGet(t, "http://"+host+"/")
			if reply.StatusCode != 404 && reply.StatusCode != 200 {
				t.Fatalf("%s answered %d", host, reply.StatusCode)
			}
			return reply.Check(200, "web")
		}, "the new host answers")
		w.kube.Delete(t, ingress(namespace, "web", host+"/ web:80"))
		rig.Eventually(t, wait, func() error {
			reply := c.MustGet(t, "http://"+host+"/")
			if reply.StatusCode != 404 && reply.StatusCode != 200 {
				t.Fatalf("%s answered %d while it went", host, reply.StatusCode)
			}
			return reply.Check(404, "")
		}, "the deleted host is gone")
	}
}

func (w *world) hostMoves(t *testing.T) {
	for i := range 20 {
		name := fmt.Sprintf("web-%d", i)
		pods := rig.StartBackends(t, name, 1)
		w.kube.ApplyObjects(t, rig.Service("changing", name), rig.SliceOf("changing", name, pods...))
		w.kube.Apply(t, ingress("changing", "web", "changing.test/ "+name+":80"))
		w.client(t).Expect(t, wait, "http://changing.test/", 200, name)
		if i > 0 {
			w.kube.DeleteObjects(t, rig.Service("changing", fmt.Sprintf("web-%d", i-1)))
		}
	}
	w.kube.Apply(t, ingress("changing", "web", "changing.test/ web:80"))
	w.client(t).Expect(t, wait, "http://changing.test/", 200, "web")
}

// endpointsRoll replaces pods as a rolling update does: the new one is ready,
// the old one leaves, and only then it stops. The last ones serve on until owner
// ends.
func (w *world) endpointsRoll(t, owner *testing.T) {
	pods := rig.StartBackends(owner, "web", 2)
	for range 10 {
		pods = append(pods[1:], rig.StartBackends(owner, "web", 1)...)
		w.kube.ApplyObjects(t, rig.SliceOf("changing", "web", pods...))
		want := map[string]bool{}
		for _, p := range pods {
			want[p.Address] = true
		}
		rig.Eventually(t, wait, func() error { return sameMembers(w.envoy.Clusters(t)["changing/web/80"], want) }, "Envoy has the new endpoints")
	}
}

func sameMembers(got []string, want map[string]bool) error {
	for _, a := range got {
		if !want[a] {
			return fmt.Errorf("%s is still used; %v", a, got)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

// portsChange adds a port that no endpoint has, and removes it again.
func (w *world) portsChange(t *testing.T) {
	for range 5 {
		w.kube.ApplyObjects(t, rig.Service("changing", "other", rig.ServicePort("", 81)))
		w.kube.Apply(t, ingress("changing", "other", "other.test/ other:81", "changing.test/other other:81"))
		rig.Eventually(t, wait, func() error { return w.client(t).MustGet(t, "http://other.test/").Check(503, "") }, "no endpoint has the port: 503")
		w.kube.Delete(t, ingress("changing", "other", "other.test/ other:81"))
		w.kube.DeleteObjects(t, rig.Service("changing", "other", rig.ServicePort("", 81)))
		rig.Eventually(t, wait, func() error { return w.client(t).MustGet(t, "http://other.test/").Check(404, "") }, "the host is gone")
	}
}

// clusterChanges alters Cluster resources whose endpoints stay the same. Envoy
// warms such a cluster until its assignment is sent again (XP-29, A19).
func (w *world) clusterChanges(t *testing.T) {
	for i := range 6 {
		port := rig.ServicePort("", 80)
		if i%2 == 0 {
			port.AppProtocol = new("kubernetes.io/h2c")
		}
		w.kube.ApplyObjects(t, rig.Service("changing", "web", port))
		want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[i%2 == 0]
		start := time.Now()
		rig.Eventually(t, wait, func() error {
			reply := w.client(t).MustGet(t, "http://changing.test/")
			if err := reply.Check(200, "web"); err != nil {
				return err
			}
			if reply.Echo.Proto != want {
				return fmt.Errorf("the backend still sees %s", reply.Echo.Proto)
			}
			return nil
		}, "the changed cluster is in use")
		// 15 s is what a cluster takes whose assignment is not sent again.
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the changed cluster took %v", took)
		}
	}
	if n := w.envoy.Stat(t, "cluster_manager.warming_clusters"); n != 0 {
		t.Errorf("%d clusters are still warming", n)
	}
}

// A Service that loses its last endpoint answers 503 at once, with the slice
// empty and with the slice gone, and comes back (A06).
func TestEmptyServiceAnswers503(t *testing.T) {
	pods := site(t, "empty", "empty.test", 1)
	c := client(t)
	empty := rig.SliceOf("empty", "web", pods...)
	empty.Endpoints = nil
	for _, change := range []func(){
		func() { lab.kube.ApplyObjects(t, empty) },
		func() { lab.kube.DeleteObjects(t, empty) },
	} {
		change()
		rig.Eventually(t, wait, func() error { return c.MustGet(t, "http://empty.test/").Check(503, "") }, "no endpoint, 503")
		before := pods[0].Requests()
		if c.MustGet(t, "http://empty.test/"); pods[0].Requests() != before {
			t.Error("a removed endpoint got a request")
		}
		lab.kube.ApplyObjects(t, rig.SliceOf("empty", "web", pods...))
		c.Expect(t, wait, "http://empty.test/", 200, "web")
	}
}

// What the README promises: an endpoint change is an endpoint change (XP-11).
func TestEndpointChangeTouchesNothingElse(t *testing.T) {
	site(t, "scale", "scale.test", 1)
	const filter = `lds.update_success|cds.update_success|rds.*update_success|listener_manager.listener|cluster_manager.cluster_(added|modified|removed)`
	before := lab.envoy.Stats(t, filter)
	if len(before) == 0 {
		t.Fatal("no such statistics")
	}
	for n := 1; n <= 5; n++ {
		pods := rig.StartBackends(t, "web", n)
		lab.kube.ApplyObjects(t, rig.SliceOf("scale", "web", pods...))
		want := map[string]bool{}
		for _, p := range pods {
			want[p.Address] = true
		}
		rig.Eventually(t, wait, func() error { return sameMembers(lab.envoy.Clusters(t)["scale/web/80"], want) }, "Envoy has the endpoints")
	}
	lab.unchanged(t, before, filter)
}

// The two examples of the Kubernetes documentation that every controller is
// asked for first.
func TestDocumentationExamples(t *testing.T) {
	lab.kube.Namespace(t, "docs")
	for _, s := range []string{"service1", "service2"} {
		port := int32(4200)
		if s == "service2" {
			port = 8080
		}
		pods := rig.StartBackends(t, s, 1)
		slice := rig.SliceOf("docs", s, pods...)
		other := slice.Ports[0]
		slice.Ports[0].Name, other.Name = new("http"), new("api")
		slice.Ports = append(slice.Ports, other)
		lab.kube.ApplyObjects(t, rig.Service("docs", s, rig.ServicePort("http", 80), rig.ServicePort("api", port)), slice)
	}
	lab.kube.ApplyObjects(t, rig.TLSSecret("docs", "names", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"first.bar.com", "second.bar.com"}})))
	lab.kube.Apply(t, ingress("docs", "simple-fanout-example", "foo.bar.com/foo service1:4200", "foo.bar.com/bar service2:8080"))
	lab.kube.Apply(t, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: docs, name: name-virtual-host-ingress}
spec:
  ingressClassName: fairway
  tls: [{hosts: [first.bar.com, second.bar.com], secretName: names}]
  rules:
  - host: first.bar.com
    http: {paths: [{pathType: Prefix, path: "/", backend: {service: {name: service1, port: {number: 80}}}}]}
  - host: second.bar.com
    http: {paths: [{pathType: Prefix, path: "/", backend: {service: {name: service2, port: {number: 80}}}}]}
`)
	c := client(t)
	c.Expect(t, wait, "http://foo.bar.com/foo", http.StatusOK, "service1")
	c.Expect(t, wait, "http://foo.bar.com/bar", http.StatusOK, "service2")
	c.Expect(t, wait, "http://foo.bar.com/baz", http.StatusNotFound, "")
	c.Expect(t, wait, "https://first.bar.com/", http.StatusOK, "service1")
	c.Expect(t, wait, "https://second.bar.com/", http.StatusOK, "service2")
	reply := c.MustGet(t, "http://second.bar.com/a/b?c=d")
	if l := reply.Header.Get("Location"); reply.StatusCode != http.StatusPermanentRedirect || l != "https://second.bar.com/a/b?c=d" {
		t.Errorf("plain HTTP answers %d to %q", reply.StatusCode, l)
	}
}
