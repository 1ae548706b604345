package rig

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Fault is what a Proxy does to the requests that it matches.
type Fault struct {
	Path    string        // regular expression for path and query, such as "/ingresses"; "" matches all
	Methods []string      // empty: all
	Delay   time.Duration // before the request goes on or is answered
	Status  int           // answer with this status instead of passing the request on
	Hang    bool          // never answer
	Reset   bool          // close the connection without an answer
	// CutAfter passes the answer on but goes silent after so many bytes of it,
	// as a network does that loses everything from then on. Zero: no cut.
	CutAfter int64
	Times    int // how often; zero: until Clear

	path *regexp.Regexp
	left int
}

// Proxy stands between a client and the API server and makes faults. Without
// faults it passes everything on, watches included.
type Proxy struct {
	Kubeconfig string       // file, as admin
	Config     *rest.Config // as admin

	kube    *Kube
	reverse *httputil.ReverseProxy
	closed  chan struct{}

	mu     sync.Mutex
	faults []*Fault
	conns  map[net.Conn]struct{}
	seen   []string
}

// StartProxy starts a proxy in front of the API server.
func StartProxy(t T, k *Kube) *Proxy {
	t.Helper()
	p := &Proxy{kube: k, closed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	target, err := url.Parse(k.Config.Host)
	if err != nil {
		t.Fatalf("%v", err)
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: k.CA.Pool()}, MaxIdleConnsPerHost: 64},
		FlushInterval: -1,
		// A client sees what it would see of a server that has gone.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p.serve(t, l)
	p.Config = k.config("https://"+l.Addr().String(), k.Config.BearerToken)
	p.Kubeconfig = p.KubeconfigFor(t, "proxied-admin", p.Config.BearerToken)
	return p
}

// FairwayKubeconfig returns a kubeconfig file of FairwayUser that leads
// through the proxy.
func (p *Proxy) FairwayKubeconfig(t T) string {
	t.Helper()
	return p.KubeconfigFor(t, "proxied-"+FairwayUser, fairwayToken)
}

// KubeconfigFor returns a kubeconfig file that leads through the proxy.
func (p *Proxy) KubeconfigFor(t T, name, token string) string {
	t.Helper()
	return p.kube.writeKubeconfig(t, name, p.kube.config(p.Config.Host, token))
}

func (p *Proxy) serve(t T, l net.Listener) {
	pair := p.kube.CA.Issue(t, CertOptions{Hosts: []string{"127.0.0.1"}})
	server := &http.Server{
		Handler:           http.HandlerFunc(p.handle),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}},
		ReadHeaderTimeout: time.Minute,
		ConnState:         p.track,
	}
	go func() {
		if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("proxy: %v", err)
		}
	}()
	t.Cleanup(func() {
		close(p.closed)
		// What cannot be closed is closed already.
		_ = server.Close()
	})
}

// Set replaces the faults. The first that matches a request counts.
func (p *Proxy) Set(t T, faults ...Fault) {
	t.Helper()
	list := make([]*Fault, 0, len(faults))
	for _, f := range faults {
		path, err := regexp.Compile(f.Path)
		if err != nil {
			t.Fatalf("fault: %v", err)
		}
		f.path, f.left = path, f.Times
		list = append(list, &f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = list
}

// Clear removes the faults. Requests that hang stay so until Drop.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// Drop resets every connection that is open now.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Seen returns "METHOD path?query" of every request so far.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

func (p *Proxy) track(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, conn)
	}
}

// match notes a request and returns the fault for it.
func (p *Proxy) match(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r.Method+" "+r.URL.RequestURI())
	for _, f := range p.faults {
		if f.matches(r) {
			f.left--
			return *f
		}
	}
	return Fault{}
}

func (f *Fault) matches(r *http.Request) bool {
	if f.Times > 0 && f.left == 0 || !f.path.MatchString(r.URL.RequestURI()) {
		return false
	}
	return len(f.Methods) == 0 || strings.Contains(" "+strings.Join(f.Methods, " ")+" ", " "+r.Method+" ")
}

func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	f := p.match(r)
	if f.Hang {
		p.wait(r, nil)
		panic(http.ErrAbortHandler)
	}
	if f.Delay > 0 {
		p.wait(r, time.After(f.Delay))
	}
	switch {
	case f.Reset:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		writeStatus(w, f.Status)
	case f.CutAfter > 0:
		cut := &cutter{ResponseWriter: w, left: f.CutAfter, silence: func() { p.wait(r, nil) }}
		p.reverse.ServeHTTP(cut, r)
	default:
		p.reverse.ServeHTTP(w, r)
	}
}

// wait returns when the client or the proxy goes, or at the given time.
func (p *Proxy) wait(r *http.Request, until <-chan time.Time) {
	select {
	case <-r.Context().Done():
	case <-p.closed:
	case <-until:
	}
}

// writeStatus answers as the API server does.
func writeStatus(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	reasons := map[int]string{
		http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusGone: "Expired",
		http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError",
	}
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a fault of the rig","reason":"` +
		reasons[code] + `","code":` + strconv.Itoa(code) + `}`
	// An error means that the client has gone.
	_, _ = w.Write([]byte(body))
}

// cutter passes a number of bytes on and then goes silent.
type cutter struct {
	http.ResponseWriter
	left    int64
	silence func()
}

func (c *cutter) Write(b []byte) (int, error) {
	part := b[:min(int64(len(b)), c.left)]
	n, err := c.ResponseWriter.Write(part)
	c.left -= int64(n)
	if err != nil || c.left > 0 {
		return n, err
	}
	if err := http.NewResponseController(c.ResponseWriter).Flush(); err != nil {
		return n, err
	}
	c.silence()
	panic(http.ErrAbortHandler)
}

// Unwrap is for http.ResponseController.
func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
