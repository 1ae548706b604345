package watcher_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// proxy passes connections on to the API server, and fails on demand.
type proxy struct {
	t      *testing.T
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	open   *sync.Cond // waits for held to become false
	held   bool       // bytes are kept back: a black hole
	refuse bool       // new connections are closed
	conns  map[net.Conn]bool
	count  int // connections so far
}

// through returns a proxy and a configuration whose requests go through it.
func through(t *testing.T, cfg *rest.Config) (*proxy, *rest.Config) {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: target.Host, l: l, conns: map[net.Conn]bool{}}
	p.open = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	cfg = rest.CopyConfig(cfg)
	cfg.Host = "https://" + l.Addr().String()
	return p, cfg
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	p.count++
	p.mu.Unlock()
	if !p.track(client) {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		p.untrack(client)
		return
	}
	defer server.Close()
	if p.track(server) {
		var pair sync.WaitGroup
		pair.Go(func() { p.copy(server, client) })
		pair.Go(func() { p.copy(client, server) })
		pair.Wait()
	}
	p.untrack(client, server)
}

// copy moves bytes until one side ends, and then ends both.
func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.wait()
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held {
		p.open.Wait()
	}
}

func (p *proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// accepted returns how many connections there were so far.
func (p *proxy) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// hold swallows everything on old and new connections, without closing them.
func (p *proxy) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = on
	p.open.Broadcast()
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// block ends all connections and, while on, every new one.
func (p *proxy) block(on bool) {
	p.mu.Lock()
	p.refuse = on
	p.mu.Unlock()
	if on {
		p.cut()
	}
}

func (p *proxy) close() {
	p.l.Close()
	p.hold(false)
	p.block(true)
	p.wg.Wait()
}
