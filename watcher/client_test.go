package watcher

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- {name: one, cluster: {server: "https://192.0.2.1:6443"}}
- {name: two, cluster: {server: "https://[2001:db8::2]:6443"}}
users: [{name: me, user: {token: secret}}]
contexts:
- {name: first, context: {cluster: one, user: me}}
- {name: second, context: {cluster: two, user: me}}
current-context: first
`

func TestRESTConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, empty, bad := write("good", kubeconfig), write("empty", ""), write("bad", "clusters: [\n")
	none := filepath.Join(dir, "none")
	for _, tt := range []struct {
		name, env string
		o         ClientOptions
		host, err string
	}{
		{"flag", "", ClientOptions{Kubeconfig: good}, "https://192.0.2.1:6443", ""},
		{"flag and context", "", ClientOptions{Kubeconfig: good, Context: "second"}, "https://[2001:db8::2]:6443", ""},
		{"environment", good, ClientOptions{}, "https://192.0.2.1:6443", ""},
		{"flag wins over environment", none, ClientOptions{Kubeconfig: good}, "https://192.0.2.1:6443", ""},
		{"nothing at all", "", ClientOptions{}, "", "no API server: not inside a cluster, and no kubeconfig is given"},
		{"missing file", "", ClientOptions{Kubeconfig: none}, "", "reading kubeconfig: stat " + none + ": no such file or directory"},
		{"missing file in environment", none, ClientOptions{}, "", "reading kubeconfig: no clusters in " + none},
		{"empty file", "", ClientOptions{Kubeconfig: empty}, "", "reading kubeconfig: no clusters in " + empty},
		{"broken file", "", ClientOptions{Kubeconfig: bad}, "", "reading kubeconfig: error loading config file \"" + bad + "\": "},
		{"unknown context", "", ClientOptions{Kubeconfig: good, Context: "third"}, "", `reading kubeconfig: context "third" does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.env)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			cfg, err := RESTConfig(tt.o)
			if err != nil {
				if tt.err == "" || !strings.HasPrefix(err.Error(), tt.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got error %q, want %q", err, tt.err)
				}
				return
			}
			if tt.err != "" || cfg.Host != tt.host || cfg.BearerToken != "secret" {
				t.Errorf("got %s, want %s, error %q", cfg.Host, tt.host, tt.err)
			}
		})
	}
}

func TestTune(t *testing.T) {
	before := &rest.Config{Host: "https://192.0.2.1"}
	cfg := Tune(before, ClientOptions{Version: "1.2.3"})
	if cfg.UserAgent != "fairway/1.2.3" || cfg.QPS != 200 || cfg.Burst != 400 || cfg.WrapTransport != nil ||
		cfg.ContentType != "application/vnd.kubernetes.protobuf" || cfg.AcceptContentTypes != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("got %+v", cfg)
	}
	if before.UserAgent != "" {
		t.Error("the original was changed")
	}
}

// flaky is an API server that cannot be reached for a number of attempts.
type flaky struct{ failures, attempts int }

func (f *flaky) RoundTrip(*http.Request) (*http.Response, error) {
	f.attempts++
	if f.attempts <= f.failures {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusForbidden}, nil
}

func TestPatient(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		failures     int
		limit        time.Duration // of the request's context
		attempts     int
		takes        time.Duration
		fails        bool
	}{
		{"reachable", http.MethodGet, 0, time.Hour, 1, 0, false},
		{"a long outage is noticed within a second", http.MethodGet, 300, time.Hour, 301, 300 * time.Second, false},
		{"writes fail at once", http.MethodPatch, 1, time.Hour, 1, 0, true},
		{"until the context ends", http.MethodGet, 300, 90 * time.Second, 90, 90 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, tt.method, "https://192.0.2.1", nil)
				if err != nil {
					t.Fatal(err)
				}
				next := &flaky{failures: tt.failures}
				var lines strings.Builder
				p := &patient{next: next, log: slog.New(slog.NewTextHandler(&lines, nil)), pause: time.Second}
				start := time.Now()
				resp, err := p.RoundTrip(r)
				if (err != nil) != tt.fails || (resp != nil) == tt.fails {
					t.Errorf("got %v, %v", resp, err)
				}
				if got := time.Since(start); next.attempts != tt.attempts && next.attempts != tt.attempts+1 || got != tt.takes {
					t.Errorf("%d attempts in %v, want %d in %v", next.attempts, got, tt.attempts, tt.takes)
				}
				if got := strings.Count(lines.String(), "unreachable"); got > 1 {
					t.Errorf("logged %d times", got)
				}
			})
		})
	}
}

func TestRouteKlog(t *testing.T) {
	defer klog.ClearLogger()
	var lines strings.Builder
	RouteKlog(slog.New(slog.NewTextHandler(&lines, nil)))
	klog.InfoS("hello", "who", "there")
	if !strings.Contains(lines.String(), "level=INFO msg=hello who=there") {
		t.Errorf("got %q", lines.String())
	}
}
