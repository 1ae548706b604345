package xds

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

const (
	anyType         = ""       // the stream's requests name their types
	maxReceive      = 32 << 20 // a reconnecting Envoy lists every resource that it has
	shutdownGrace   = 2 * time.Second
	keepaliveTime   = 30 * time.Second
	keepaliveWait   = 10 * time.Second
	connectionWait  = 10 * time.Second // for the handshakes of TLS and HTTP/2
	minimumPingTime = 5 * time.Second
	maxStreams      = 1000 // per connection; an Envoy needs one
)

// ServerOptions configure a Server.
type ServerOptions struct {
	Logger *slog.Logger
	TLS    *tls.Config // nil: plaintext

	// Debug makes it the port for people: private keys are redacted in every
	// answer, there is no service for Secrets, and its clients count neither in
	// metrics nor in reports.
	Debug bool
}

// Server serves a Store over gRPC.
type Server struct {
	store  *Store
	opts   ServerOptions
	log    *slog.Logger
	grpc   *grpc.Server
	health *health.Server

	streams context.Context // ends when the streams have to
	stop    context.CancelFunc
}

// NewServer returns a server that has all services registered.
func NewServer(store *Store, opts ServerOptions) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{store: store, opts: opts, log: opts.Logger, health: health.NewServer()}
	s.streams, s.stop = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(s.grpcOptions()...)
	s.register(s.grpc)
	s.registerStatus(s.grpc)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	return s
}

// grpcOptions bound what a client may send, and notice when it is gone.
func (s *Server) grpcOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(s.store.heavy)),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectionWait),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveWait}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minimumPingTime, PermitWithoutStream: true}),
	}
	if s.opts.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.opts.TLS)))
	}
	return options
}

// Serve serves until ctx ends, closes the streams and returns nil. It can be
// called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(l) }()
	go s.announce(ctx)
	select {
	case err := <-served:
		s.stop()
		return err
	case <-ctx.Done():
	}
	s.health.Shutdown()
	_ = l.Close() // before the streams: Envoys reconnect at once
	s.stop()
	finished := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(shutdownGrace):
		s.grpc.Stop()
		<-finished
	}
	<-served
	return nil
}

// announce reports the server healthy once there is something to serve.
func (s *Server) announce(ctx context.Context) {
	select {
	case <-s.store.ready:
		s.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	case <-ctx.Done():
	}
}

// awaitReady waits for the first publish: a part of the world would delete the
// rest from an Envoy.
func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-s.store.ready:
		return nil
	case <-s.streams.Done():
		return status.Error(codes.Unavailable, "shutting down")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// delta serves one stream of the incremental protocol. With a server object per
// stream, the object that the library asks is the stream itself.
func (s *Server) delta(str grpc.ServerStream, typeURL string) error {
	return s.serve(str, true, typeURL, func(ctx context.Context, st *stream) error {
		return delta.NewServer(ctx, st, nil).DeltaStreamHandler(&deltaStream{str, st, typeURL}, typeURL)
	})
}

// sotw serves one state-of-the-world stream. Without ordered ADS the library picks
// ready types at random.
func (s *Server) sotw(str grpc.ServerStream, typeURL string) error {
	return s.serve(str, false, typeURL, func(ctx context.Context, st *stream) error {
		return sotw.NewServer(ctx, st, nil, sotw.WithOrderedADS()).StreamHandler(&sotwStream{str, st, typeURL}, typeURL)
	})
}

// serve runs the library's handler and the stream's own goroutine until the
// stream ends.
func (s *Server) serve(str grpc.ServerStream, delta bool, typeURL string, handle func(context.Context, *stream) error) (err error) {
	if err := s.awaitReady(str.Context()); err != nil {
		return err
	}
	st := s.store.open(delta, typeURL == anyType, s.opts.Debug)
	defer st.close()
	ctx, cancel := context.WithCancel(s.streams)
	var deciding sync.WaitGroup
	defer deciding.Wait()
	defer cancel()
	deciding.Go(func() {
		defer cancel()
		defer s.contain(nil)
		st.run(ctx)
	})
	s.log.Debug("stream opened", "protocol", protocolName(delta), "type", typeURL)
	defer s.log.Debug("stream closed", "protocol", protocolName(delta), "type", typeURL)
	defer s.contain(&err)
	return handle(ctx, st)
}

// contain turns a panic into the end of one stream: gRPC would end the process.
func (s *Server) contain(err *error) {
	p := recover()
	if p == nil {
		return
	}
	s.log.Error("a stream failed", "err", p, "stack", string(debug.Stack()))
	if err != nil {
		*err = status.Error(codes.Internal, "the stream failed")
	}
}
