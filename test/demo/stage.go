package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ports are the ones the demo would like; each taken one is replaced by a free
// one.
type ports struct{ http, https, xds, debug, admin, first, second int }

// stage holds all that the demo starts.
type stage struct {
	dir     string // temporary: manifests, bootstrap, logs
	objects string
	ports   ports
	envoy   *exec.Cmd
	started []*exec.Cmd
	servers []*http.Server
}

func newStage(ctx context.Context) (*stage, error) {
	dir, err := os.MkdirTemp("", "fairway-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, objects: filepath.Join(dir, "objects")}
	steps := []func(context.Context) error{s.choosePorts, s.writeObjects, s.startBackends, s.startFairway, s.startEnvoy}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			s.printLogs()
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) choosePorts(ctx context.Context) error {
	for p, wanted := range map[*int]int{
		&s.ports.http: 18080, &s.ports.https: 18443, &s.ports.xds: 18000, &s.ports.debug: 18001,
		&s.ports.admin: 10254, &s.ports.first: 18091, &s.ports.second: 18092,
	} {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", address(wanted))
		if err != nil {
			if l, err = config.Listen(ctx, "tcp", address(0)); err != nil {
				return fmt.Errorf("finding a free port: %w", err)
			}
		}
		*p = l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// writeObjects copies the manifests, so that editing them changes no checkout,
// and adds a TLS Secret.
func (s *stage) writeObjects(context.Context) error {
	files, err := filepath.Glob("test/demo/objects/*.yaml")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no manifests in test/demo/objects: run this from the root of the checkout")
	}
	if err := os.Mkdir(s.objects, 0o750); err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := s.write(filepath.Base(f), strings.ReplaceAll(string(text), "port: 18091", fmt.Sprint("port: ", s.ports.first))); err != nil {
			return err
		}
	}
	secret, err := tlsSecret("secure-test", "secure.test")
	if err != nil {
		return err
	}
	return s.write("secret.yaml", secret)
}

func (s *stage) write(name, text string) error {
	return os.WriteFile(filepath.Join(s.objects, name), []byte(text), 0o600)
}

func (s *stage) startBackends(ctx context.Context) error {
	for name, port := range map[string]int{"first": s.ports.first, "second": s.ports.second} {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", address(port))
		if err != nil {
			return fmt.Errorf("starting the %s backend: %w", name, err)
		}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "the %s backend saw %s %s for host %s from %s over %s\n",
				name, r.Method, r.URL.Path, r.Host, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"))
		})}
		s.servers = append(s.servers, server)
		go func() { _ = server.Serve(l) }()
	}
	return nil
}

func (s *stage) startFairway(ctx context.Context) error {
	_, err := s.start(ctx, program("FAIRWAY", "bin/fairway"), "serve", "--manifests", s.objects,
		"--xds-address", address(s.ports.xds), "--xds-insecure", "--debug-address", address(s.ports.debug), "--admin-address", address(s.ports.admin),
		"--http-port", strconv.Itoa(s.ports.http), "--https-port", strconv.Itoa(s.ports.https))
	if err != nil {
		return err
	}
	return waitFor(ctx, "Fairway to be ready", func() bool {
		r, err := http.Get("http://" + address(s.ports.admin) + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

func (s *stage) startEnvoy(ctx context.Context) error {
	bootstrap := filepath.Join(s.dir, "envoy.json")
	if out, err := exec.CommandContext(ctx, program("FAIRWAY", "bin/fairway"), "bootstrap", "--node-id", "demo", "--xds-address", address(s.ports.xds),
		"--admin-socket", filepath.Join(s.dir, "admin.sock"), "-o", bootstrap).CombinedOutput(); err != nil {
		return fmt.Errorf("fairway bootstrap: %w: %s", err, out)
	}
	var err error
	if s.envoy, err = s.start(ctx, program("ENVOY", ".cache/bin/envoy"), "-c", bootstrap, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"); err != nil {
		return err
	}
	return waitFor(ctx, "Envoy to listen", func() bool {
		c, err := net.DialTimeout("tcp", address(s.ports.http), time.Second)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// program is the path that a variable gives, or where make puts the program.
func program(variable, path string) string { return cmp.Or(os.Getenv(variable), path) }

// start runs a program that ends with the demo, even if the demo is killed.
func (s *stage) start(_ context.Context, binary string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(binary)+".log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	s.started = append(s.started, cmd)
	return cmd, nil
}

func (s *stage) close() {
	for i := len(s.started) - 1; i >= 0; i-- {
		_ = s.started[i].Process.Signal(syscall.SIGTERM)
		_ = s.started[i].Wait()
	}
	for _, server := range s.servers {
		_ = server.Close()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *stage) fairwayLog() string { return filepath.Join(s.dir, "fairway.log") }

func (s *stage) printLogs() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, l := range logs {
		text, _ := os.ReadFile(l)
		fmt.Fprintf(os.Stderr, "---- %s\n%s", filepath.Base(l), text)
	}
}

// waitFor polls until the condition holds.
func waitFor(ctx context.Context, what string, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
	return nil
}
