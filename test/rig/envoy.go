package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// EnvoyOptions describe an Envoy. Exactly one of Bootstrap and BootstrapFile is
// needed.
type EnvoyOptions struct {
	Name          string // in logs; default "envoy"
	Bootstrap     []byte // YAML or JSON
	BootstrapFile string
	// AdminSocket is the path of the admin socket that the bootstrap names.
	// Without it the rig makes one, whatever the bootstrap says.
	AdminSocket string
	Flags       []string // appended
	LogLevel    string   // default "info"
	NoWait      bool     // do not wait until it is ready
	// Node runs the Envoy in a network namespace of its own, as on another
	// machine, so that several can bind the same ports.
	Node *Node
}

// Envoy is a real Envoy process.
type Envoy struct {
	AdminSocket string
	IP          string // where its listeners are reached

	process *process
	admin   *http.Client
}

// envoyTimeout is how long an Envoy may take to be ready.
const envoyTimeout = 30 * time.Second

// StartEnvoy starts an Envoy and, unless told otherwise, waits until it is
// ready.
func StartEnvoy(t T, o EnvoyOptions) *Envoy {
	t.Helper()
	if o.Name == "" {
		o.Name = "envoy"
	}
	if o.LogLevel == "" {
		o.LogLevel = "info"
	}
	e := &Envoy{AdminSocket: o.AdminSocket, IP: "127.0.0.1"}
	if e.AdminSocket == "" {
		e.AdminSocket = socketPath(t)
	}
	e.admin = adminClient(e.AdminSocket)
	t.Cleanup(e.admin.CloseIdleConnections)
	e.process = newProcess(t, o.Name, Program(t, "envoy"), e.arguments(t, o)...)
	if o.Node != nil {
		e.IP, e.process.inside = o.Node.IP, o.Node.netns
	}
	if err := e.process.start(); err != nil {
		t.Fatalf("%v", err)
	}
	if !o.NoWait {
		e.WaitReady(t)
	}
	return e
}

// socketPath returns a path for a unix socket. Its length is limited to 107
// bytes, which a test's own folder may exceed.
func socketPath(t T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "envoy-")
	if err != nil {
		t.Fatalf("temporary folder: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "admin.sock")
}

func (e *Envoy) arguments(t T, o EnvoyOptions) []string {
	t.Helper()
	file := o.BootstrapFile
	if file == "" {
		file = filepath.Join(t.TempDir(), "bootstrap.yaml")
		if err := os.WriteFile(file, o.Bootstrap, 0o600); err != nil {
			t.Fatalf("write bootstrap: %v", err)
		}
	}
	args := []string{"--config-path", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", o.LogLevel}
	if o.AdminSocket == "" {
		// Merged into the file's content.
		args = append(args, "--config-yaml", fmt.Sprintf(`{"admin":{"address":{"pipe":{"path":%q}}}}`, e.AdminSocket))
	}
	if o.LogLevel == "info" {
		// At this level the component lists every extension when it starts.
		args = append(args, "--component-log-level", "main:warn")
	}
	return append(args, o.Flags...)
}

func adminClient(socket string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 10 * time.Second}
}

// Admin sends a request to the admin interface and returns the body.
func (e *Envoy) Admin(method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, "http://admin"+path, nil)
	if err != nil {
		return nil, err
	}
	return fetch(e.admin, request)
}

// Ready returns nil if Envoy has its complete configuration.
func (e *Envoy) Ready() error {
	_, err := e.Admin(http.MethodGet, "/ready")
	return err
}

// WaitReady waits until Envoy is ready and fails the test if it ends or takes
// too long.
func (e *Envoy) WaitReady(t T) {
	t.Helper()
	if err := e.process.waitReady(envoyTimeout, e.Ready); err != nil {
		t.Fatalf("%v", err)
	}
}

// Stats returns the counters and gauges whose names match a regular
// expression.
func (e *Envoy) Stats(t T, filter string) map[string]int64 {
	t.Helper()
	body := e.get(t, "/stats?format=json&filter="+url.QueryEscape(filter))
	var answer struct {
		Stats []struct {
			Name  string
			Value json.Number // absent for histograms
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("stats: %v", err)
	}
	stats := map[string]int64{}
	for _, s := range answer.Stats {
		if n, err := s.Value.Int64(); err == nil {
			stats[s.Name] = n
		}
	}
	return stats
}

// Stat returns one counter or gauge, zero if Envoy does not have it.
func (e *Envoy) Stat(t T, name string) int64 {
	t.Helper()
	return e.Stats(t, "^"+strings.ReplaceAll(name, ".", `\.`)+"$")[name]
}

// ConfigDump returns Envoy's configuration as JSON, endpoints included. A
// resource such as "dynamic_listeners" narrows it down; "" asks for all.
func (e *Envoy) ConfigDump(t T, resource string) []byte {
	t.Helper()
	path := "/config_dump?include_eds"
	if resource != "" {
		path += "&resource=" + url.QueryEscape(resource)
	}
	return e.get(t, path)
}

// Clusters returns the addresses of the hosts of each cluster.
func (e *Envoy) Clusters(t T) map[string][]string {
	t.Helper()
	var answer struct {
		ClusterStatuses []struct {
			Name         string
			HostStatuses []struct {
				Address struct {
					SocketAddress struct {
						Address   string
						PortValue int `json:"port_value"`
					} `json:"socket_address"`
				}
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal(e.get(t, "/clusters?format=json"), &answer); err != nil {
		t.Fatalf("clusters: %v", err)
	}
	clusters := map[string][]string{}
	for _, c := range answer.ClusterStatuses {
		clusters[c.Name] = []string{}
		for _, h := range c.HostStatuses {
			a := h.Address.SocketAddress
			clusters[c.Name] = append(clusters[c.Name], net.JoinHostPort(a.Address, fmt.Sprint(a.PortValue)))
		}
	}
	return clusters
}

func (e *Envoy) get(t T, path string) []byte {
	t.Helper()
	body, err := e.Admin(http.MethodGet, path)
	if err != nil {
		t.Fatalf("envoy admin: %v", err)
	}
	return body
}

// PID returns the process id.
func (e *Envoy) PID() int { return e.process.pid() }

// Alive returns an error with the end of the log if Envoy has ended.
func (e *Envoy) Alive() error { return e.process.alive() }

// Log returns what Envoy has logged.
func (e *Envoy) Log() string { return e.process.log() }

// Kill ends Envoy at once.
func (e *Envoy) Kill() { e.process.kill() }

// Stop asks Envoy to end, as Kubernetes does.
func (e *Envoy) Stop() { e.process.stop(10 * time.Second) }

// Restart starts Envoy again after Kill or Stop, and ends it first if it still
// runs. It does not wait until Envoy is ready.
func (e *Envoy) Restart(t T) {
	t.Helper()
	e.Kill()
	if err := e.process.start(); err != nil {
		t.Fatalf("%v", err)
	}
}

// ValidateEnvoy asks the real Envoy whether it accepts a bootstrap. The error
// is Envoy's own.
func ValidateEnvoy(t T, bootstrap []byte) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatalf("write bootstrap: %v", err)
	}
	cmd := exec.Command(Program(t, "envoy"), "--mode", "validate", "--config-path", file, "--log-level", "warn")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("envoy: %w\n%s", err, out)
	}
	return nil
}

// ValidateEnvoyConfig asks the real Envoy whether it accepts static resources:
// the keys are "listeners", "clusters" and "secrets", the values anything that
// becomes the JSON of such a resource.
func ValidateEnvoyConfig(t T, resources map[string][]json.RawMessage) error {
	t.Helper()
	for kind := range resources {
		if kind != "listeners" && kind != "clusters" && kind != "secrets" {
			return errors.New("no such kind of static resource: " + kind)
		}
	}
	bootstrap, err := yaml.Marshal(map[string]any{
		"node":             map[string]string{"id": "validate", "cluster": "validate"},
		"static_resources": resources,
	})
	if err != nil {
		return err
	}
	return ValidateEnvoy(t, bootstrap)
}
