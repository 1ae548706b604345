package bench

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairway/envoy"
	"fairway/test/rig"
	"fairway/translator"
)

var services = flag.Int("services", 1000, "Services, and Ingresses, on each side")

func TestMain(m *testing.M) { rig.Main(m) }

const changes = 40

// side is one of the two control planes, with an Envoy and a namespace of its
// own; both watch the same API server.
type side struct {
	name   string
	client *rig.Client
	took   []time.Duration
}

// BenchmarkEndpointToAnswer moves an endpoint between two backends and measures
// from the PATCH until the new one answers over a kept connection. The two sides
// take turns.
func BenchmarkEndpointToAnswer(b *testing.B) {
	kube := rig.StartKube(b, rig.KubeOptions{})
	kube.Apply(b, "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: fairway}, spec: {controller: fairway.sh/ingress-controller}}")
	pods := []*rig.Backend{backend(b, "first"), backend(b, "second")}
	for _, namespace := range []string{"fairway", "baseline"} {
		fill(b, kube, namespace, pods[0])
	}
	sides := []*side{fairwaySide(b, kube), baselineSide(b, kube)}
	for _, s := range sides {
		s.client.Expect(b, 2*time.Minute, fmt.Sprintf("http://host-%d.test/", *services-1), 200, "")
	}
	b.ResetTimer()
	for range b.N {
		for i := range changes {
			for _, s := range sides {
				s.took = append(s.took, move(b, kube, s, i, pods))
			}
		}
	}
	report(b, sides)
}

func backend(b *testing.B, name string) *rig.Backend {
	return rig.StartBackend(b, rig.BackendOptions{Service: "web", Pod: name})
}

// fill creates the Services, slices and Ingresses of one side.
func fill(b *testing.B, kube *rig.Kube, namespace string, pod *rig.Backend) {
	b.Helper()
	kube.Namespace(b, namespace)
	var g errgroup.Group
	g.SetLimit(8)
	for i := range *services {
		g.Go(func() error {
			name := fmt.Sprintf("s-%d", i)
			slice := rig.SliceOf(namespace, name, pod)
			slice.Endpoints[0].Conditions.Ready = new(true)
			if err := kube.TryApplyObjects(rig.Service(namespace, name), slice); err != nil {
				return err
			}
			return kube.TryApply(fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: %s, name: %s}
spec:
  ingressClassName: fairway
  rules: [{host: host-%d.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %s, port: {number: 80}}}}]}}]
`, namespace, name, i, name))
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func fairwaySide(b *testing.B, kube *rig.Kube) *side {
	f := rig.StartFairway(b, "--kubeconfig", kube.Kubeconfig, "--watch-namespace", "fairway")
	e := f.StartEnvoy(b, "fairway", rig.EnvoyOptions{LogLevel: "error"})
	return &side{name: "fairway", client: f.Client(b, e, rig.ClientOptions{})}
}

func baselineSide(b *testing.B, kube *rig.Kube) *side {
	port, tls := rig.Port(b), rig.Port(b)
	address := startBaseline(b, kube, "baseline", translator.Config{
		ControllerClass: "fairway.sh/ingress-controller", HTTPPort: uint32(port), HTTPSPort: uint32(tls), Fallback: fallback(b),
	})
	files, err := envoy.Bootstrap(envoy.BootstrapOptions{NodeID: baselineNode, XDSAddress: address, AdminSocket: "admin.sock", StatsAddress: rig.Loopback(b)})
	if err != nil {
		b.Fatal(err)
	}
	bootstrap := strings.Replace(string(files[envoy.BootstrapFile]), "DELTA_GRPC", "GRPC", 1)
	e := rig.StartEnvoy(b, rig.EnvoyOptions{Name: "baseline", Bootstrap: []byte(bootstrap), LogLevel: "error"})
	return &side{name: "baseline", client: rig.NewClient(b, rig.ClientOptions{HTTP: fmt.Sprintf("%s:%d", e.IP, port)})}
}

func fallback(b *testing.B) envoy.Certificate {
	pair := rig.SelfSigned(b, rig.CertOptions{Hosts: []string{"fallback.test"}})
	return envoy.Certificate{Chain: pair.CertPEM, Key: pair.KeyPEM}
}

// move points one Service at the other backend and waits for its answer.
func move(b *testing.B, kube *rig.Kube, s *side, i int, pods []*rig.Backend) time.Duration {
	b.Helper()
	n := i * (*services / changes) % *services
	url := fmt.Sprintf("http://host-%d.test/", n)
	s.client.MustGet(b, url) // the connections are open
	to := pods[0]
	if s.client.MustGet(b, url).Echo.Pod == to.Pod {
		to = pods[1]
	}
	patch := fmt.Sprintf(`{"endpoints":[{"addresses":[%q],"conditions":{"ready":true}}]}`, to.IP())
	name := rig.SliceOf(s.name, fmt.Sprintf("s-%d", n), to).Name
	start := time.Now()
	if _, err := kube.Client.DiscoveryV1().EndpointSlices(s.name).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	for time.Since(start) < time.Minute {
		if reply := s.client.MustGet(b, url); reply.Echo != nil && reply.Echo.Pod == to.Pod {
			return time.Since(start)
		}
	}
	b.Fatalf("%s never moved", url)
	return 0
}

func report(b *testing.B, sides []*side) {
	median := map[string]float64{}
	for _, s := range sides {
		slices.Sort(s.took)
		at := func(q float64) float64 { return float64(s.took[int(q*float64(len(s.took)-1))].Microseconds()) / 1000 }
		median[s.name] = at(0.5)
		b.ReportMetric(at(0.5), s.name+"-p50-ms")
		b.ReportMetric(at(0.95), s.name+"-p95-ms")
	}
	b.ReportMetric(median["baseline"]/median["fairway"], "times-faster")
	b.ReportMetric(float64(*services), "services")
}
