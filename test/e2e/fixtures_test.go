package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/test/rig"
)

// soon is within what time a change of one object must be served, whatever is
// wrong with others.
const soon = 2 * time.Second

// tlsIngress is ingress with a Secret for hosts; without hosts the entry lists
// none.
func tlsIngress(namespace, name, secret string, hosts []string, rules ...string) string {
	entry := "{secretName: " + secret + "}"
	if len(hosts) > 0 {
		entry = "{secretName: " + secret + `, hosts: ["` + strings.Join(hosts, `", "`) + `"]}`
	}
	return ingress(namespace, name, rules...) + "  tls:\n  - " + entry + "\n"
}

// tlsSite is site for a host with a certificate, whose common name is the host.
func tlsSite(t *testing.T, namespace, host string) []*rig.Backend {
	t.Helper()
	lab.kube.Namespace(t, namespace)
	pods := rig.StartBackends(t, "web", 1)
	lab.kube.ApplyObjects(t, rig.Service(namespace, "web"), rig.SliceOf(namespace, "web", pods...),
		rig.TLSSecret(namespace, "cert", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{host}})))
	lab.kube.Apply(t, tlsIngress(namespace, "web", "cert", []string{host}, host+"/ web:80"))
	shows(t, wait, httpsAddress(), strings.Replace(host, "*", "x", 1), host)
	client(t).Expect(t, wait, "https://"+strings.Replace(host, "*", "x", 1)+"/", 200, "web")
	return pods
}

// shows waits until an address shows the certificate with a common name for a
// server name.
func shows(t *testing.T, timeout time.Duration, address, serverName, commonName string) {
	t.Helper()
	rig.Eventually(t, timeout, func() error {
		if got := presented(t, address, serverName); got != commonName {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	}, "the certificate "+commonName+" for "+serverName)
}

// reported waits for an Event on an Ingress that has a reason and says
// something.
func reported(t *testing.T, namespace, name, reason, text string) {
	t.Helper()
	rig.Eventually(t, wait, func() error {
		events, err := lab.kube.Client.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Ingress,involvedObject.name=" + name,
		})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) && e.Type == "Warning" {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("its Events are %q", seen)
	}, fmt.Sprintf("an Event %s (%s) on Ingress %s/%s", reason, text, namespace, name))
}

// refusals returns how often Envoy has refused something, by statistic.
func refusals(t *testing.T, e *rig.Envoy) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for name, n := range e.Stats(t, "update_rejected$") {
		if n != 0 {
			out[name] = n
		}
	}
	return out
}

// movesSoon replaces the only endpoint of a site and expects that Envoy uses the
// new one without delay.
func movesSoon(t *testing.T, namespace, host string) {
	t.Helper()
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "web"})
	lab.kube.ApplyObjects(t, rig.SliceOf(namespace, "web", pod))
	rig.Eventually(t, soon, func() error {
		reply := client(t).MustGet(t, "http://"+host+"/")
		if err := reply.Check(200, "web"); err != nil {
			return err
		}
		if reply.Echo.Pod != pod.Pod {
			return fmt.Errorf("%s answers, not %s", reply.Echo.Pod, pod.Pod)
		}
		return nil
	}, host+" is served by its new endpoint")
}
