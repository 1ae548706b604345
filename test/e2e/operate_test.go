package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairway/test/rig"
)

// A wrong call says in one line what is wrong, and exits 1.
func TestWrongCallsSayWhatIsWrong(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	busy := rig.Loopback(t)
	for _, c := range []struct {
		args string
		want string
	}{
		{"serve --no-such-flag", "unknown flag: --no-such-flag"},
		{"frobnicate", `unknown command "frobnicate" for "fairway"`},
		{"serve", "give either --xds-tls-dir, or --xds-insecure together with a loopback --xds-address"},
		{"serve --xds-insecure", "--xds-insecure needs a loopback --xds-address such as 127.0.0.1:18000"},
		{"serve --xds-insecure --xds-address 10.245.0.1:18000", "--xds-insecure needs a loopback --xds-address"},
		{"serve --xds-insecure --xds-address nonsense", "--xds-insecure needs a loopback --xds-address"},
		{"serve --xds-tls-dir " + missing + " --kubeconfig " + missing, "reading the xDS key: open " + missing},
		{"serve --xds-insecure --xds-address " + busy + " --kubeconfig " + missing, missing},
		{"serve --xds-insecure --xds-address " + busy + " --debug-address 0.0.0.0:1", `--debug-address "0.0.0.0:1" is not a loopback address`},
		{"serve --xds-insecure --xds-address " + busy + " --http-port 0", "--http-port and --https-port must be two different ports"},
		{"serve --xds-insecure --xds-address " + busy + " --log-level loud", `--log-level "loud": want debug, info, warn or error`},
		{"serve --xds-insecure --xds-address " + busy + " --default-ssl-certificate nonsense", `--default-ssl-certificate "nonsense": want NAMESPACE/NAME`},
		{"serve --xds-insecure --xds-address " + busy + " --manifests " + t.TempDir() + " --admin-address 10.1.2.3:99", `--admin-address "10.1.2.3:99"`},
		{"bootstrap --node-id x --xds-address nonsense", `xds address "nonsense": want HOST:PORT`},
		{"bootstrap --node-id x", `required flag(s) "xds-address" not set`},
		{"bootstrap --node-id x --xds-address a:1 --xds-tls-dir /x", "say with -o where to write them"},
		{"translate -f " + missing, missing},
	} {
		t.Run(c.args, func(t *testing.T) {
			_, stderr, code := rig.RunFairway(t, strings.Fields(c.args)...)
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			last := lines[len(lines)-1]
			if code != 1 || !strings.HasPrefix(last, "fairway: ") || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d:\n%s\nwant 1 and a line with %q", code, stderr, c.want)
			}
			if len(lines) > 2 {
				t.Errorf("%d lines:\n%s", len(lines), stderr)
			}
		})
	}
}

// Every command explains itself with examples.
func TestHelp(t *testing.T) {
	for _, command := range []string{"serve", "bootstrap", "translate", "certs"} {
		out, _, code := rig.RunFairway(t, command, "--help")
		if code != 0 || !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help exits %d:\n%s", command, code, out)
		}
	}
}

// The commands that the README shows are run as they stand there.
func TestReadmeGrpcurl(t *testing.T) {
	t.Parallel()
	site(t, "readme", "readme.test", 1)
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"envoy.service.discovery.v3.AggregatedDiscoveryService",
		`"clusterName": "readme/web/80"`,
		`"cluster": "readme/web/80"`,
		`"id": "lab"`,
	}
	commands := regexp.MustCompile(`(?m)^grpcurl .*$`).FindAllString(string(text), -1)
	if len(commands) != len(want) {
		t.Fatalf("the README has %d grpcurl commands, the test knows %d", len(commands), len(want))
	}
	for i, c := range commands {
		t.Run(c, func(t *testing.T) {
			c = strings.ReplaceAll(c, "127.0.0.1:18001", lab.fairway.Debug)
			for range 20 {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", c)
				cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(rig.Program(t, "grpcurl"))+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), want[i]) || strings.Contains(string(out), "@error") {
					t.Fatalf("%v\n%s\nwant %s", err, out, want[i])
				}
			}
		})
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// manifests returns the files that kustomization.yaml lists, as one text.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), "manifests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(f); name != "kustomization.yaml" {
			out[name] = string(text)
		}
	}
	return out
}

// The manifests, certificates included, are what a real API server accepts.
func TestManifestsAreAccepted(t *testing.T) {
	lab.kube.Namespace(t, "fairway-system")
	for name, text := range manifests(t) {
		if err := lab.kube.DryRun(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	secrets, errOut, code := rig.RunFairway(t, "certs")
	if code != 0 {
		t.Fatal(errOut)
	}
	if err := lab.kube.DryRun(secrets); err != nil {
		t.Errorf("fairway certs: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), rig.Program(t, "kubectl"), "--kubeconfig", lab.kube.Kubeconfig, "apply", "--dry-run=server", "-k", filepath.Join(root(t), "manifests"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("kubectl apply -k: %v\n%s", err, out)
	}
}

// The rights in the manifests are enough: as that ServiceAccount, with RBAC on,
// Fairway serves, writes the status and an Event, and is refused nothing.
func TestRightsAreEnough(t *testing.T) {
	t.Parallel()
	kube := rig.StartKube(t, rig.KubeOptions{AuditLog: true})
	kube.Namespace(t, "fairway-system")
	for _, name := range []string{"rbac.yaml", "ingressclass.yaml"} {
		kube.Apply(t, manifests(t)[name])
	}
	fairway := rig.StartFairway(t, "--kubeconfig", kube.ServiceAccountKubeconfig(t, "fairway-system", "fairway"), "--publish-status-address", "203.0.113.1")
	envoy := fairway.StartEnvoy(t, "rights", rig.EnvoyOptions{})
	pods := rig.StartBackends(t, "web", 1)
	kube.ApplyObjects(t, rig.Service("default", "web"), rig.SliceOf("default", "web", pods...),
		rig.TLSSecret("default", "rights", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"rights.test"}})))
	kube.Apply(t, ingress("default", "web", "rights.test/ web:80", "rights.test/missing nobody:80"))
	fairway.Client(t, envoy, rig.ClientOptions{}).Expect(t, wait, "http://rights.test/", 200, "web")
	rig.Eventually(t, wait, func() error {
		ing, err := kube.Client.NetworkingV1().Ingresses("default").Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil || len(ing.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("no status yet: %v", err)
		}
		return event(kube, "web", "ServiceNotFound")
	}, "status and Event are written")
	audit, err := os.ReadFile(kube.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(audit), "\n") {
		if strings.Contains(line, `system:serviceaccount:fairway-system:fairway`) && strings.Contains(line, `"code":403`) {
			t.Errorf("refused: %s", line)
		}
	}
}

// event returns nil if an Ingress in "default" has an Event with the reason.
func event(kube *rig.Kube, ingress, reason string) error {
	events, err := kube.Client.EventsV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.Regarding.Name == ingress && e.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no Event %s on %s among %d", reason, ingress, len(events.Items))
}

// The demo's tour succeeds.
func TestDemo(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/fairway", "./test/demo")
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	demo := exec.CommandContext(ctx, filepath.Join(bin, "demo"))
	demo.Dir = root(t)
	demo.Env = append(os.Environ(), "ONCE=1", "ENVOY="+rig.Program(t, "envoy"), "FAIRWAY="+filepath.Join(bin, "fairway"))
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Envoy (still process") {
		t.Fatalf("%v\n%s", err, out)
	}
}
