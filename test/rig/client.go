package rig

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// ClientOptions say how a client behaves. The zero value keeps connections and
// speaks HTTP/1.1.
type ClientOptions struct {
	HTTP  string // address that answers http://, whatever host the URL names
	HTTPS string // address that answers https://

	HTTP2          bool          // over TLS by ALPN, without TLS by prior knowledge
	NewConnections bool          // one connection per request
	Follow         bool          // follow redirects, at the same addresses
	TLS            *tls.Config   // ServerName, certificates, versions; default: SNI = host, no verification
	Timeout        time.Duration // default 10 s
}

// Client sends requests to one proxy whatever host they name. There is no DNS.
type Client struct {
	options ClientOptions
	http    *http.Client
}

// Reply is a complete answer.
type Reply struct {
	*http.Response
	Body []byte
	Echo *Echo // nil if a backend of the rig did not make the answer
}

// NewClient returns a client and closes its connections when the test ends.
func NewClient(t T, o ClientOptions) *Client {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	c := &Client{options: o}
	transport := &http.Transport{
		DialContext:         c.dial,
		TLSClientConfig:     c.tls(),
		Protocols:           c.protocols(),
		DisableKeepAlives:   o.NewConnections,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
	}
	c.http = &http.Client{Transport: transport, Timeout: o.Timeout}
	c.http.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
		if !o.Follow {
			return http.ErrUseLastResponse
		}
		*next = *next.WithContext(context.WithValue(next.Context(), schemeKey{}, next.URL.Scheme))
		return nil
	}
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

func (c *Client) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!c.options.HTTP2)
	p.SetHTTP2(c.options.HTTP2)
	p.SetUnencryptedHTTP2(c.options.HTTP2)
	return p
}

func (c *Client) tls() *tls.Config {
	if c.options.TLS != nil {
		return c.options.TLS.Clone()
	}
	// Most certificates of the rig are self-signed; tests look at the name in
	// the answer's connection state.
	return &tls.Config{InsecureSkipVerify: true}
}

// schemeKey is the context key of a request's scheme.
type schemeKey struct{}

// dial connects to the proxy instead of the host of the URL.
func (c *Client) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	address := c.options.HTTP
	if ctx.Value(schemeKey{}) == "https" {
		address = c.options.HTTPS
	}
	if address == "" {
		return nil, errors.New("the client has no address for this scheme")
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// Get sends a GET request. Options change it before it is sent.
func (c *Client) Get(target string, options ...func(*http.Request)) (*Reply, error) {
	return c.Do(context.Background(), http.MethodGet, target, nil, options...)
}

// Do sends a request and reads the whole answer.
func (c *Client) Do(ctx context.Context, method, target string, body io.Reader, options ...func(*http.Request)) (*Reply, error) {
	response, err := c.Open(ctx, method, target, body, options...)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", target, err)
	}
	reply := &Reply{Response: response, Body: content}
	echo := new(Echo)
	if json.Unmarshal(content, echo) == nil && echo.Pod != "" {
		reply.Echo = echo
	}
	return reply, nil
}

// Open sends a request and leaves the answer's body to the caller.
func (c *Client) Open(ctx context.Context, method, target string, body io.Reader, options ...func(*http.Request)) (*http.Response, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, schemeKey{}, u.Scheme)
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		o(request)
	}
	return c.http.Do(request)
}

// Header is a request option.
func Header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// MustGet is Get for requests that must be answered.
func (c *Client) MustGet(t T, target string, options ...func(*http.Request)) *Reply {
	t.Helper()
	reply, err := c.Get(target, options...)
	if err != nil {
		t.Fatalf("GET %s: %v", target, err)
	}
	return reply
}

// Expect waits until a GET request is answered with this status and, unless it
// is empty, by this Service.
func (c *Client) Expect(t T, timeout time.Duration, target string, status int, service string) {
	t.Helper()
	Eventually(t, timeout, func() error {
		reply, err := c.Get(target)
		if err != nil {
			return err
		}
		return reply.Check(status, service)
	}, "GET "+target)
}

// Check returns an error unless the answer has this status and, unless it is
// empty, comes from this Service.
func (r *Reply) Check(status int, service string) error {
	if r.StatusCode != status {
		return fmt.Errorf("status %d, want %d: %.200s", r.StatusCode, status, r.Body)
	}
	if service != "" && (r.Echo == nil || r.Echo.Service != service) {
		return fmt.Errorf("answered by %+v, want service %s", r.Echo, service)
	}
	return nil
}

// WebSocket opens a websocket through the proxy. The scheme of the target is
// http or https.
func (c *Client) WebSocket(ctx context.Context, target string, header http.Header) (*websocket.Conn, *http.Response, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	ctx = context.WithValue(ctx, schemeKey{}, u.Scheme)
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	config := c.tls()
	config.NextProtos = []string{"http/1.1"}
	dialer := websocket.Dialer{NetDialContext: c.dial, TLSClientConfig: config, HandshakeTimeout: c.options.Timeout}
	return dialer.DialContext(ctx, u.String(), header)
}

// GRPC returns a gRPC connection through the proxy. The target is a URL without
// a path; its scheme decides about TLS, its host is the authority.
func (c *Client) GRPC(t T, target string) *grpc.ClientConn {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("%v", err)
	}
	security := insecure.NewCredentials()
	if u.Scheme == "https" {
		security = credentials.NewTLS(c.tls())
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host,
		grpc.WithTransportCredentials(security), grpc.WithAuthority(u.Host),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.dial(context.WithValue(ctx, schemeKey{}, u.Scheme), "tcp", address)
		}))
	if err != nil {
		t.Fatalf("gRPC client for %s: %v", target, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Raw sends bytes over a new TCP connection and returns what comes back until
// the other side closes or the timeout passes. It is for requests that no
// client would send.
func Raw(address, request string, timeout time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	var timedOut net.Error
	if errors.As(err, &timedOut) && timedOut.Timeout() {
		err = nil
	}
	return string(answer), err
}
