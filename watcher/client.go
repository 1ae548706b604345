package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// ClientOptions says which API server to talk to, and how.
type ClientOptions struct {
	Kubeconfig string // path; empty: $KUBECONFIG, and without that, in-cluster
	Context    string // of the kubeconfig; empty: its current one
	Version    string // of Fairway, for the user agent
	Logger     *slog.Logger
	// Patient makes reads wait for an API server that cannot be reached,
	// instead of failing. A process that serves wants this; a command does not.
	Patient bool
}

// RESTConfig finds the API server and the credentials. It connects to nothing.
func RESTConfig(o ClientOptions) (*rest.Config, error) {
	cfg, err := locate(o)
	if err != nil {
		return nil, err
	}
	return Tune(cfg, o), nil
}

// locate reads the kubeconfig or the pod's service account.
func locate(o ClientOptions) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server: not inside a cluster, and no kubeconfig is given")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the service account: %w", err)
		}
		return cfg, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	rules.WarnIfAllMissing = false
	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	if len(raw.Clusters) == 0 {
		return nil, fmt.Errorf("reading kubeconfig: no clusters in %s", rules.GetDefaultFilename())
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, o.Context, overrides, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	return cfg, nil
}

// Tune returns a copy of cfg with Fairway's settings. The rate limit is high:
// fairness is the API server's own business, and a low limit here once delayed
// endpoints behind a burst of other requests. A silent connection is found by
// client-go's HTTP/2 pings: after 30 s without a frame, and 15 s without a reply.
func Tune(cfg *rest.Config, o ClientOptions) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "fairway/" + o.Version
	cfg.QPS, cfg.Burst = 200, 400
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if o.Patient {
		log := o.Logger
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &patient{next: next, log: log, pause: time.Second}
		})
	}
	return cfg
}

// RouteKlog sends the log lines of client-go to a Logger. klog keeps it in a
// global variable, so this is for main, once.
func RouteKlog(l *slog.Logger) { klog.SetSlogLogger(l) }

// patient repeats reads while the API server cannot be reached. Without it the
// informers back off: after an outage of minutes they wait up to a minute more.
type patient struct {
	next  http.RoundTripper
	log   *slog.Logger
	pause time.Duration
	down  atomic.Bool
}

// RoundTrip returns the first response, of whatever status, or the error of
// any request but a GET. It gives up when the request's context ends.
func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		resp, err := p.next.RoundTrip(r)
		if err == nil {
			if p.down.CompareAndSwap(true, false) {
				p.log.Info("api server reachable again")
			}
			return resp, nil
		}
		if r.Method != http.MethodGet || r.Context().Err() != nil {
			return nil, err
		}
		if p.down.CompareAndSwap(false, true) {
			p.log.Warn("api server unreachable", "err", err)
		}
		if !pause(r.Context(), p.pause) {
			return nil, err
		}
	}
}

// WrappedRoundTripper lets client-go find the transport below.
func (p *patient) WrappedRoundTripper() http.RoundTripper { return p.next }

// pause waits; it reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
