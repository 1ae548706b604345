package rig

import (
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Backend is an echo server that stands for one pod of a Service. On one port
// it speaks HTTP/1.1, HTTP/2 without TLS (by prior knowledge), websocket and
// gRPC; with a certificate the same over TLS.
//
// Every path answers with an Echo, except /sse, /slow?ms=N, /bytes?n=N and
// /status?code=N, which do what they say.
type Backend struct {
	Service string
	Pod     string
	Address string // IP and port

	options  BackendOptions
	grpc     *grpc.Server
	requests atomic.Int64

	mu     sync.Mutex
	server *http.Server // nil while stopped
	conns  map[net.Conn]struct{}
}

// BackendOptions describe a backend.
type BackendOptions struct {
	Service   string
	Pod       string           // default: the Service's name and a number
	Address   string           // default: a new pod address and PodPort
	TLS       *tls.Config      // default: no TLS
	Handler   http.HandlerFunc // called first; it may answer or leave the request to the echo by writing nothing
	NoHTTP2   bool
	OnRequest func(*http.Request) // sees every request
}

// StartBackend starts a backend and stops it when the test ends.
func StartBackend(t T, o BackendOptions) *Backend {
	t.Helper()
	if o.Address == "" {
		o.Address = net.JoinHostPort(PodIP(), strconv.Itoa(PodPort))
	}
	if o.Pod == "" {
		o.Pod = o.Service + "-" + strconv.FormatInt(pods.Add(1), 10)
	}
	b := &Backend{Service: o.Service, Pod: o.Pod, Address: o.Address, options: o}
	b.grpc = newEchoServer(b)
	b.Start(t)
	t.Cleanup(b.Stop)
	return b
}

// StartBackends starts n backends of one Service.
func StartBackends(t T, service string, n int) []*Backend {
	t.Helper()
	list := make([]*Backend, n)
	for i := range list {
		list[i] = StartBackend(t, BackendOptions{Service: service, Pod: service + "-" + strconv.Itoa(i)})
	}
	return list
}

// Start lets a stopped backend listen again, at the same address.
func (b *Backend) Start(t T) {
	t.Helper()
	l, err := net.Listen("tcp", b.Address)
	if err != nil {
		t.Fatalf("backend %s: %v", b.Pod, err)
	}
	b.Address = l.Addr().String()
	server := &http.Server{
		Handler:           http.HandlerFunc(b.serve),
		TLSConfig:         b.options.TLS.Clone(),
		Protocols:         b.protocols(),
		ReadHeaderTimeout: time.Minute,
		ConnState:         b.track,
	}
	b.mu.Lock()
	b.server, b.conns = server, map[net.Conn]struct{}{}
	b.mu.Unlock()
	go func() {
		if err := serve(server, l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("backend %s: %v", b.Pod, err)
		}
	}()
}

// track keeps the open connections. The server forgets those that became
// websockets.
func (b *Backend) track(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateNew:
		b.conns[conn] = struct{}{}
	case http.StateClosed:
		delete(b.conns, conn)
	}
}

func serve(server *http.Server, l net.Listener) error {
	if server.TLSConfig != nil {
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

func (b *Backend) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(!b.options.NoHTTP2)
	p.SetUnencryptedHTTP2(!b.options.NoHTTP2)
	return p
}

// Stop closes the listener and every connection, as a pod that is killed does.
func (b *Backend) Stop() {
	b.mu.Lock()
	server, conns := b.server, maps.Clone(b.conns)
	b.server = nil
	b.mu.Unlock()
	if server == nil {
		return
	}
	// What cannot be closed is closed already.
	_ = server.Close()
	for conn := range conns {
		_ = conn.Close()
	}
}

// Requests returns the number of requests that the backend has received.
func (b *Backend) Requests() int64 { return b.requests.Load() }

// IP returns the backend's address without the port.
func (b *Backend) IP() string {
	host, _, _ := net.SplitHostPort(b.Address)
	return host
}

// Port returns the backend's port.
func (b *Backend) Port() int {
	_, port, _ := net.SplitHostPort(b.Address)
	n, _ := strconv.Atoi(port)
	return n
}
