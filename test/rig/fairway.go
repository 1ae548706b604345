package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// fairwayTimeout is how long Fairway may take to publish its first state.
const fairwayTimeout = 30 * time.Second

// Fairway is a running "fairway serve".
type Fairway struct {
	XDS       string // address of the ADS for Envoys
	Debug     string // address of the gRPC for people
	Admin     string // address of /readyz, /metrics and /debug
	HTTPPort  int    // what Envoy binds
	HTTPSPort int

	process *process
}

// StartFairway starts "fairway serve" with these flags and waits until it is
// ready. Addresses and ports that the flags leave open are free ones; xDS is
// plaintext on loopback unless a flag says otherwise.
func StartFairway(t T, flags ...string) *Fairway {
	t.Helper()
	f := LaunchFairway(t, flags...)
	f.WaitReady(t)
	return f
}

// LaunchFairway is StartFairway without the wait.
func LaunchFairway(t T, flags ...string) *Fairway {
	t.Helper()
	f := &Fairway{}
	args := append([]string{"serve"}, flags...)
	address := func(flag string) string {
		if given, ok := flagValue(flags, flag); ok {
			return given
		}
		a := Loopback(t)
		args = append(args, flag+"="+a)
		return a
	}
	port := func(flag string) int {
		if given, ok := flagValue(flags, flag); ok {
			n, err := strconv.Atoi(given)
			if err != nil {
				t.Fatalf("%s: %v", flag, err)
			}
			return n
		}
		p := Port(t)
		args = append(args, flag+"="+strconv.Itoa(p))
		return p
	}
	f.XDS, f.Debug, f.Admin = address("--xds-address"), address("--debug-address"), address("--admin-address")
	f.HTTPPort, f.HTTPSPort = port("--http-port"), port("--https-port")
	if _, secure := flagValue(flags, "--xds-tls-dir"); !secure {
		args = append(args, "--xds-insecure")
	}
	f.process = newProcess(t, "fairway", fairwayBinary(t), args...)
	f.start(t)
	return f
}

// flagValue returns the value of a flag in the forms --flag=value and
// --flag value.
func flagValue(flags []string, name string) (string, bool) {
	for i, f := range flags {
		if value, ok := strings.CutPrefix(f, name+"="); ok {
			return value, true
		}
		if f == name {
			if i+1 < len(flags) {
				return flags[i+1], true
			}
			return "", true
		}
	}
	return "", false
}

func fairwayBinary(t T) string {
	t.Helper()
	path, err := buildFairway()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return path
}

func (f *Fairway) start(t T) {
	t.Helper()
	if err := f.process.start(); err != nil {
		t.Fatalf("%v", err)
	}
}

// WaitReady waits until Fairway has published its first state and fails the
// test if it ends or takes too long.
func (f *Fairway) WaitReady(t T) {
	t.Helper()
	if err := f.process.waitReady(fairwayTimeout, f.Ready); err != nil {
		t.Fatalf("%v", err)
	}
}

// Ready returns nil if /readyz says so.
func (f *Fairway) Ready() error {
	_, err := f.Get("/readyz")
	return err
}

// Get asks the admin server and returns the body of a 200 answer.
func (f *Fairway) Get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	return fetch(http.DefaultClient, request)
}

// fetch sends a request and returns the body of a 200 answer.
func fetch(client *http.Client, request *http.Request) ([]byte, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d: %s", request.URL.RequestURI(), response.StatusCode, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// Metrics returns the metric families that /metrics shows, by name.
func (f *Fairway) Metrics(t T) map[string]*dto.MetricFamily {
	t.Helper()
	body, err := f.Get("/metrics")
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	return families
}

// PID returns the process id.
func (f *Fairway) PID() int { return f.process.pid() }

// Alive returns an error with the end of the log if Fairway has ended.
func (f *Fairway) Alive() error { return f.process.alive() }

// Exited returns the exit code if Fairway has ended.
func (f *Fairway) Exited() (code int, ok bool) { return f.process.exited() }

// Log returns what Fairway has logged.
func (f *Fairway) Log() string { return f.process.log() }

// Kill ends Fairway at once.
func (f *Fairway) Kill() { f.process.kill() }

// Stop asks Fairway to end, as Kubernetes does, and returns its exit code.
func (f *Fairway) Stop() int { return f.process.stop(30 * time.Second) }

// Restart starts Fairway again with the same flags and addresses, and kills it
// first if it still runs. It does not wait until Fairway is ready.
func (f *Fairway) Restart(t T) {
	t.Helper()
	f.Kill()
	f.start(t)
}

// Bootstrap returns the Envoy bootstrap for this Fairway, made by "fairway
// bootstrap". The flags come after the rig's own.
func (f *Fairway) Bootstrap(t T, nodeID string, flags ...string) []byte {
	t.Helper()
	args := []string{"bootstrap", "--xds-address=" + f.XDS, "--node-id=" + nodeID}
	if _, given := flagValue(flags, "--stats-address"); !given {
		args = append(args, "--stats-address="+Loopback(t))
	}
	out, errOut, code := RunFairway(t, append(args, flags...)...)
	if code != 0 {
		t.Fatalf("fairway bootstrap: exit code %d: %s", code, errOut)
	}
	return []byte(out)
}

// StartEnvoy starts an Envoy that gets its configuration from this Fairway. A
// second one needs a Node, because both bind the same ports.
func (f *Fairway) StartEnvoy(t T, nodeID string, o EnvoyOptions, flags ...string) *Envoy {
	t.Helper()
	if o.Node != nil {
		o.Node.Forward(t, f.XDS, f.XDS)
	}
	if o.Name == "" {
		o.Name = "envoy-" + nodeID
	}
	if o.Bootstrap == nil && o.BootstrapFile == "" {
		// Fairway's own readiness listener leads to the socket that it was told.
		if o.AdminSocket == "" {
			o.AdminSocket = socketPath(t)
		}
		o.Bootstrap = f.Bootstrap(t, nodeID, append([]string{"--admin-socket=" + o.AdminSocket}, flags...)...)
	}
	return StartEnvoy(t, o)
}

// Client returns a client that sends its requests through an Envoy of this
// Fairway.
func (f *Fairway) Client(t T, e *Envoy, o ClientOptions) *Client {
	t.Helper()
	o.HTTP = net.JoinHostPort(e.IP, strconv.Itoa(f.HTTPPort))
	o.HTTPS = net.JoinHostPort(e.IP, strconv.Itoa(f.HTTPSPort))
	return NewClient(t, o)
}

// RunFairway runs the binary to its end and returns what it wrote and its exit
// code.
func RunFairway(t T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fairwayBinary(t), args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("fairway %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errOut.String(), exitCode(err)
}
