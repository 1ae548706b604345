package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fairway/xds"
)

// adminHandler answers probes and scrapers, and, to clients on this machine
// only, the debug pages. Nothing here changes anything.
func (a *App) adminHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	debug := http.NewServeMux()
	debug.HandleFunc("GET /debug/verify", a.verify)
	debug.HandleFunc("GET /debug/streams", a.streams)
	debug.HandleFunc("GET /debug/pprof/", pprof.Index)
	debug.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	debug.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.Handle("/debug/", onlyLoopback(debug))
	return mux
}

// readyz is true once everything that exists was read, translated and
// published.
func (a *App) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.store.Ready() {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, "waiting for", a.pending())
}

func (a *App) verify(w http.ResponseWriter, _ *http.Request) {
	differences := a.pipeline.verify()
	if len(differences) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusInternalServerError)
	for _, d := range differences {
		fmt.Fprintln(w, d)
	}
}

func (a *App) streams(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(append([]xds.StreamStatus{}, a.store.Streams()...)); err != nil {
		a.logger.Debug("writing the streams", "err", err)
	}
}

func onlyLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !peer.Addr().Unmap().IsLoopback() {
			http.Error(w, "the debug pages answer on loopback only: use kubectl port-forward", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Who does not finish a request, or keeps a connection without one, is cut off:
// the address is open to the cluster, and descriptors are few.
const (
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
)

// boundBody limits the time that a client has for a body, which nothing here
// reads. The server's own limit for that would cut profiles short.
func boundBody(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)) // every connection has one
		}
		next.ServeHTTP(w, r)
	})
}

// serveHTTP serves until the context ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: boundBody(h, requestTimeout), ReadHeaderTimeout: requestTimeout, IdleTimeout: idleTimeout}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the admin address: %w", err)
	}
	<-stopped
	return nil
}
