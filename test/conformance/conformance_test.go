package conformance

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

const statusAddress = "203.0.113.10"

const class = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairway}
spec: {controller: fairway.sh/ingress-controller}
`

func TestIngressAPI(t *testing.T) {
	cases, err := Load("cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kube := rig.StartKube(t, rig.KubeOptions{})
	kube.Apply(t, class)
	fairway := rig.StartFairway(t, "--kubeconfig", kube.Kubeconfig, "--publish-status-address", statusAddress)
	r := &runner{kube: kube, fairway: fairway, envoy: fairway.StartEnvoy(t, "conformance", rig.EnvoyOptions{})}
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) { r.run(t, fmt.Sprintf("case-%d", i), c) })
	}
}

type runner struct {
	kube    *rig.Kube
	fairway *rig.Fairway
	envoy   *rig.Envoy
}

func (r *runner) run(t *testing.T, namespace string, c Case) {
	r.kube.Namespace(t, namespace)
	for _, s := range c.Secrets {
		r.kube.ApplyObjects(t, rig.TLSSecret(namespace, s.Name, rig.SelfSigned(t, rig.CertOptions{Hosts: s.Hosts})))
	}
	for name, ports := range services(c) {
		r.kube.ApplyObjects(t, rig.Service(namespace, name, ports...))
		for i, p := range ports {
			backends := rig.StartBackends(t, name, endpoints(c, name))
			slice := rig.SliceOf(namespace, name, backends...)
			slice.Name = fmt.Sprintf("%s-%d", name, i)
			slice.Ports[0].Name = &p.Name
			r.kube.ApplyObjects(t, slice)
		}
	}
	for i := range c.Ingresses {
		ing := c.Ingresses[i].DeepCopy()
		ing.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}
		ing.Namespace = namespace
		if ing.Spec.IngressClassName == nil {
			ing.Spec.IngressClassName = new("fairway")
		}
		r.kube.ApplyObjects(t, ing)
	}
	defer r.cleanUp(t, namespace, c)
	r.waitForStatus(t, namespace, c)
	for _, s := range c.Steps {
		t.Run(s.ID, func(t *testing.T) { r.step(t, s) })
	}
}

// waitForStatus waits for the address; from then on every request must be right
// the first time. An Ingress of another class must not get one.
func (r *runner) waitForStatus(t *testing.T, namespace string, c Case) {
	check := func() error {
		ing, err := r.kube.Client.NetworkingV1().Ingresses(namespace).Get(context.Background(), c.Ingresses[0].Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lb := ing.Status.LoadBalancer.Ingress; len(lb) != 1 || lb[0].IP != statusAddress {
			return fmt.Errorf("status is %v", lb)
		}
		return nil
	}
	if c.NoStatus {
		rig.Consistently(t, 3*time.Second, func() error {
			if check() == nil {
				return fmt.Errorf("an Ingress of another class got an address")
			}
			return nil
		}, "the status stays empty")
		return
	}
	rig.Eventually(t, 30*time.Second, check, "the Ingress gets its address")
}

// cleanUp removes the Ingresses and waits until Envoy has forgotten them: the
// next case may use the same hosts.
func (r *runner) cleanUp(t *testing.T, namespace string, c Case) {
	for i := range c.Ingresses {
		if err := r.kube.Client.NetworkingV1().Ingresses(namespace).Delete(context.Background(), c.Ingresses[i].Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	client := r.fairway.Client(t, r.envoy, rig.ClientOptions{})
	rig.Eventually(t, 30*time.Second, func() error {
		reply, err := client.Get("http://nobody.test/")
		if err != nil {
			return err
		}
		if reply.StatusCode != http.StatusNotFound || len(r.envoy.Clusters(t)) > 2 {
			return fmt.Errorf("status %d, clusters %v", reply.StatusCode, r.envoy.Clusters(t))
		}
		return nil
	}, "the Ingresses are gone from Envoy")
}

// services lists every Service that the Ingresses refer to, with its ports.
func services(c Case) map[string][]corev1.ServicePort {
	out := map[string][]corev1.ServicePort{}
	add := func(b *networkingv1.IngressBackend) {
		if b == nil || b.Service == nil {
			return
		}
		p := rig.ServicePort(fmt.Sprintf("p%d", b.Service.Port.Number), b.Service.Port.Number)
		if b.Service.Port.Name != "" {
			p = rig.ServicePort(b.Service.Port.Name, 8080)
		}
		if !slices.ContainsFunc(out[b.Service.Name], func(o corev1.ServicePort) bool { return o.Name == p.Name }) {
			out[b.Service.Name] = append(out[b.Service.Name], p)
		}
	}
	for _, ing := range c.Ingresses {
		add(ing.Spec.DefaultBackend)
		for _, rule := range ing.Spec.Rules {
			for i := range rule.HTTP.Paths {
				add(&rule.HTTP.Paths[i].Backend)
			}
		}
	}
	return out
}

func endpoints(c Case, service string) int {
	for _, s := range c.Services {
		if s.Name == service {
			return s.Endpoints
		}
	}
	return 1
}

func (r *runner) step(t *testing.T, s Step) {
	followed := !slices.ContainsFunc(s.Expect.Status, func(code int) bool { return code >= 300 && code < 400 })
	client := r.fairway.Client(t, r.envoy, rig.ClientOptions{Follow: followed})
	method := s.Req.Method
	if method == "" {
		method = http.MethodGet
	}
	url := strings.ReplaceAll(s.Req.URL, "STATUS_ADDRESS", statusAddress)
	pods := map[string]bool{}
	for range max(s.Count, 1) {
		reply, err := client.Do(context.Background(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range s.Expect.check(reply) {
			t.Error(problem)
		}
		if reply.Echo != nil {
			pods[reply.Echo.Pod] = true
		}
	}
	if s.Expect.DistinctPods != 0 && len(pods) != s.Expect.DistinctPods {
		t.Errorf("%d pods answered, not %d", len(pods), s.Expect.DistinctPods)
	}
}

// check returns what is wrong with an answer.
func (e Expectation) check(r *rig.Reply) []string {
	var out []string
	expect := func(what string, got, want any) {
		if got != want {
			out = append(out, fmt.Sprintf("%s is %v, not %v", what, got, want))
		}
	}
	if !slices.Contains(e.Status, r.StatusCode) {
		out = append(out, fmt.Sprintf("status is %d, not one of %v", r.StatusCode, e.Status))
	}
	echo := r.Echo
	if echo == nil {
		if e.Service != "" {
			out = append(out, fmt.Sprintf("no backend answered: %s", r.Body))
		}
		return append(out, checkHeaders("response", e.Headers, r.Header)...)
	}
	for _, f := range []struct{ what, got, want string }{
		{"service", echo.Service, e.Service}, {"host", echo.Host, e.Host}, {"path", echo.Path, e.Path}, {"method", echo.Method, e.Method}, {"protocol", r.Proto, e.Proto},
	} {
		if f.want != "" {
			expect(f.what, f.got, f.want)
		}
	}
	if e.Proto != "" {
		expect("protocol at the backend", echo.Proto, e.Proto)
	}
	if e.CertHost != "" {
		expect("certificate", r.TLS.PeerCertificates[0].VerifyHostname(e.CertHost), nil)
		expect("first name of the certificate", r.TLS.PeerCertificates[0].DNSNames[0], e.CertHost)
	}
	out = append(out, checkHeaders("response", e.Headers, r.Header)...)
	return append(out, checkHeaders("request", e.ReqHeaders, echo.Headers)...)
}

func checkHeaders(what string, want map[string]string, got http.Header) []string {
	var out []string
	for name, pattern := range want {
		value := got.Get(name)
		if value == "" || pattern != "*" && !regexp.MustCompile("^(?:"+pattern+")$").MatchString(value) {
			out = append(out, fmt.Sprintf("%s header %s is %q, not %q", what, name, value, pattern))
		}
	}
	return out
}
