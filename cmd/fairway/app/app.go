package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"fairway/translator"
	"fairway/translator/model"
	"fairway/watcher"
	"fairway/watcher/files"
	"fairway/watcher/status"
	"fairway/xds"
)

// The config lane gathers changes for as long as they keep coming within
// quietTime of each other, and for maxDelay at most.
const (
	quietTime = 50 * time.Millisecond
	maxDelay  = 500 * time.Millisecond
)

// App is a control plane that is ready to run.
type App struct {
	config   Config
	logger   *slog.Logger
	store    *xds.Store
	pipeline *pipeline
	runners  []func(context.Context) error
	pending  func() string

	// XDS, Debug and Admin are the open listeners; Debug may be nil.
	XDS, Debug, Admin net.Listener
}

// New checks the configuration and opens the listeners; log lines go to w.
// Nothing is served before Run.
func New(c Config, w io.Writer) (*App, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	a := &App{config: c, logger: newLogger(c, w)}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	tc, err := c.translation(c.Manifests != "")
	if err != nil {
		return nil, err
	}
	var writer *status.Writer
	a.store = xds.NewStore(xds.Options{
		Logger: a.logger, Registerer: registry,
		OnSettled: func(g uint64) { writer.Settled(g) },
		OnNack:    func(n xds.Nack) { a.pipeline.refused(n) },
	})
	queue := watcher.NewQueue(quietTime, maxDelay)
	src, client, follow, err := a.source(queue, registry)
	if err != nil {
		return nil, err
	}
	writer = status.New(status.Options{
		Client: client, Source: src, Addresses: c.PublishStatusAddress, UpdateStatus: c.UpdateStatus,
		Logger: a.logger, Registerer: registry,
	})
	a.pipeline = &pipeline{
		logger: a.logger, config: tc, source: src, queue: queue, store: a.store,
		conclude: writer.Conclude, tell: writer.Tell, follow: follow,
	}
	a.pipeline.prepare(registry)
	a.runs(a.pipeline.run, writer.Run)
	if err := a.listen(registry); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func newLogger(c Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // Validate has checked it
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// translation returns the part of the configuration that the translator needs.
// A folder of manifests is its operator's own, so endpoints on loopback
// addresses are allowed there; in a cluster, tenants write endpoints.
func (c *Config) translation(folder bool) (translator.Config, error) {
	fallback, err := fallbackCertificate(c.XDSTLSDir)
	if err != nil {
		return translator.Config{}, err
	}
	backend, _ := parseRef(model.Service, c.DefaultBackend) // Validate has checked both
	certificate, _ := parseRef(model.Secret, c.DefaultCertificate)
	return translator.Config{
		ControllerClass: c.ControllerClass, IngressClass: c.IngressClass, WithoutClass: c.WithoutClass,
		DisableCatchAll: c.DisableCatchAll, DefaultBackend: backend, DefaultCertificate: certificate, Fallback: fallback,
		HTTPPort: uint32(c.HTTPPort), HTTPSPort: uint32(c.HTTPSPort), ExternalName: c.ExternalName,
		OwnNamespace: os.Getenv("POD_NAMESPACE"), AllowLoopback: folder,
	}, nil
}

// source prepares what is watched: a folder, or a cluster. The client is nil
// for a folder.
func (a *App) source(queue *watcher.Queue, r prometheus.Registerer) (model.Source, kubernetes.Interface, func([]model.Ref), error) {
	c := a.config
	if c.Manifests != "" {
		w := files.New(files.Options{Dir: c.Manifests, IngressClass: c.IngressClass, ControllerClass: c.ControllerClass, Queue: queue, Logger: a.logger})
		a.runs(w.Run)
		a.pending = func() string { return "the folder " + c.Manifests }
		return w.Source(), nil, func([]model.Ref) {}, nil
	}
	watcher.RouteKlog(a.logger)
	rest, err := watcher.RESTConfig(watcher.ClientOptions{Kubeconfig: c.Kubeconfig, Context: c.Context, Version: Version, Logger: a.logger, Patient: true})
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	w, err := watcher.New(watcher.Options{
		Client: client, Queue: queue, Logger: a.logger, Registerer: r,
		Namespaces: c.Namespaces, NamespaceSelector: c.NamespaceSelector, ServiceSelector: c.ServiceSelector,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	a.runs(w.Run)
	a.pending = func() string { return strings.Join(w.Pending(), ", ") }
	return w.Source(), client, w.Follow, nil
}

// listen opens the addresses, so that a wrong one ends the process before
// anything is served.
func (a *App) listen(registry *prometheus.Registry) error {
	c := a.config
	server := xds.ServerOptions{Logger: a.logger}
	if c.XDSTLSDir != "" {
		var err error
		if server.TLS, err = xds.TLSFromDir(c.XDSTLSDir); err != nil {
			return err
		}
	}
	var err error
	if a.XDS, err = open("--xds-address", c.XDSAddress); err != nil {
		return err
	}
	a.runs(func(ctx context.Context) error { return xds.NewServer(a.store, server).Serve(ctx, a.XDS) })
	if c.DebugAddress != "" {
		if a.Debug, err = open("--debug-address", c.DebugAddress); err != nil {
			return err
		}
		a.runs(func(ctx context.Context) error {
			return xds.NewServer(a.store, xds.ServerOptions{Logger: a.logger, Debug: true}).Serve(ctx, a.Debug)
		})
	}
	if a.Admin, err = open("--admin-address", c.AdminAddress); err != nil {
		return err
	}
	handler := a.adminHandler(registry)
	a.runs(func(ctx context.Context) error { return serveHTTP(ctx, a.Admin, handler) })
	return nil
}

// runs adds what Run is to run.
func (a *App) runs(runners ...func(context.Context) error) { a.runners = append(a.runners, runners...) }

func open(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("%s %q: %w", flag, address, err)
	}
	return l, nil
}

func (a *App) close() {
	for _, l := range []net.Listener{a.XDS, a.Debug, a.Admin} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// Run serves until the context ends, which is no error.
func (a *App) Run(ctx context.Context) error {
	a.logger.Info("starting", "version", Version, "xds", a.config.XDSAddress, "debug", a.config.DebugAddress, "admin", a.config.AdminAddress)
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range a.runners {
		group.Go(func() error { return run(ctx) })
	}
	err := group.Wait()
	a.close()
	return err
}
