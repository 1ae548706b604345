package rig

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// bootstrap routes everything on one port to one backend, h2 requests by h2.
func bootstrap(node string, port int, b *Backend) []byte {
	return fmt.Appendf(nil, `
node: {id: %q, cluster: rig}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}
static_resources:
  listeners:
  - name: http
    enable_reuse_port: false
    address: {socket_address: {address: 0.0.0.0, port_value: %d}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          server_name: %q
          upgrade_configs: [{upgrade_type: websocket}]
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, route: {cluster: backend}}]
          http_filters:
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: backend
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}
    load_assignment:
      cluster_name: backend
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %d}}}}]}]
`, node, port, node, b.IP(), b.Port())
}

func TestEnvoy(t *testing.T) {
	b := StartBackend(t, BackendOptions{Service: "web"})
	port := Port(t)
	e := StartEnvoy(t, EnvoyOptions{Bootstrap: bootstrap("no", port, b)})
	address := net.JoinHostPort(e.IP, strconv.Itoa(port))
	c := NewClient(t, ClientOptions{HTTP: address})

	t.Run("HTTP1", func(t *testing.T) { testEcho(t, c, b, "HTTP/1.1") })
	t.Run("HTTP2", func(t *testing.T) {
		testEcho(t, NewClient(t, ClientOptions{HTTP: address, HTTP2: true}), b, "HTTP/2.0")
	})
	t.Run("WebSocket", func(t *testing.T) { testWebSocket(t, c, b) })
	t.Run("GRPC", func(t *testing.T) { testGRPC(t, c, b) })
	t.Run("Raw", func(t *testing.T) { testRaw(t, address) })
	t.Run("Admin", func(t *testing.T) { testAdmin(t, e, b) })
	t.Run("Load", func(t *testing.T) { testLoad(t, address, b) })
	t.Run("Restart", func(t *testing.T) { testEnvoyRestart(t, e, c) })
}

func testEcho(t *testing.T, c *Client, b *Backend, proto string) {
	before := b.Requests()
	reply := c.MustGet(t, "http://Shop.example/a%20b?q=1", Header("X-Test", "yes"))
	if err := reply.Check(http.StatusOK, "web"); err != nil {
		t.Fatal(err)
	}
	e := reply.Echo
	if e.Pod != b.Pod || e.Method != "GET" || e.Path != "/a%20b?q=1" || e.Proto != proto || reply.Proto != proto {
		t.Errorf("echo = %+v, reply by %s", e, reply.Proto)
	}
	if e.Header("X-Test") != "yes" || !strings.EqualFold(e.Host, "shop.example") {
		t.Errorf("host = %q, headers = %v", e.Host, e.Headers)
	}
	if got := b.Requests() - before; got != 1 {
		t.Errorf("the backend counted %d requests, want 1", got)
	}
	for target, status := range map[string]int{"/status?code=418": 418, "/slow?ms=1": 200} {
		if got := c.MustGet(t, "http://a"+target).StatusCode; got != status {
			t.Errorf("%s: status %d, want %d", target, got, status)
		}
	}
	if got := len(c.MustGet(t, "http://a/bytes?n=70000").Body); got != 70000 {
		t.Errorf("/bytes: %d bytes, want 70000", got)
	}
}

func testWebSocket(t *testing.T, c *Client, b *Backend) {
	conn, response, err := c.WebSocket(context.Background(), "http://shop.example/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := response.Header.Get("X-Backend-Pod"); got != b.Pod {
		t.Errorf("pod = %q, want %q", got, b.Pod)
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != "hello" {
		t.Errorf("message = %q, %v", got, err)
	}
}

func testGRPC(t *testing.T, c *Client, b *Backend) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn := c.GRPC(t, "http://grpc.example")
	echo, err := GRPCEcho(ctx, conn, "hello")
	if err != nil {
		t.Fatal(err)
	}
	if echo.Pod != b.Pod || echo.Host != "grpc.example" || echo.BodyBytes != 5 {
		t.Errorf("echo = %+v", echo)
	}
	stream, err := GRPCChat(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if got, err := chat(stream, text); err != nil || got != text {
			t.Errorf("chat = %q, %v", got, err)
		}
	}
}

func testRaw(t *testing.T, address string) {
	answer, err := Raw(address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 5*time.Second)
	if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n") {
		t.Errorf("answer = %.60q, %v", answer, err)
	}
}

func testAdmin(t *testing.T, e *Envoy, b *Backend) {
	if got := e.Clusters(t)["backend"]; len(got) != 1 || got[0] != b.Address {
		t.Errorf("hosts = %v, want %s", got, b.Address)
	}
	if e.Stat(t, "cluster.backend.upstream_rq_total") == 0 {
		t.Error("no request counted")
	}
	if !strings.Contains(string(e.ConfigDump(t, "")), `"id": "no"`) {
		t.Error("the configuration does not show the node")
	}
}

func testEnvoyRestart(t *testing.T, e *Envoy, c *Client) {
	pid := e.PID()
	e.Kill()
	if e.Alive() == nil || e.Ready() == nil {
		t.Error("envoy lives after it was killed")
	}
	e.Restart(t)
	e.WaitReady(t)
	if e.PID() == pid {
		t.Error("the process is the old one")
	}
	c.Expect(t, 5*time.Second, "http://a/", http.StatusOK, "web")
}

func TestValidateEnvoy(t *testing.T) {
	b := StartBackend(t, BackendOptions{Service: "web"})
	if err := ValidateEnvoy(t, bootstrap("a", 8080, b)); err != nil {
		t.Error(err)
	}
	err := ValidateEnvoy(t, []byte("node: {id: a, cluster: b}\nstatic_resources: {clusters: [{name: c, type: EDS}]}"))
	if err == nil || !strings.Contains(err.Error(), "without an EDS config") {
		t.Errorf("a broken bootstrap: %v", err)
	}
}

func TestNodesShareAPort(t *testing.T) {
	b := StartBackend(t, BackendOptions{Service: "web"})
	relayed := StartBackend(t, BackendOptions{Service: "relayed", Address: "127.0.0.1:18000"})
	for _, name := range []string{"first", "second"} {
		node := NewNode(t)
		e := StartEnvoy(t, EnvoyOptions{Name: name, Bootstrap: bootstrap(name, 80, b), Node: node})
		reply := NewClient(t, ClientOptions{HTTP: e.IP + ":80"}).MustGet(t, "http://a/")
		if err := reply.Check(http.StatusOK, "web"); err != nil {
			t.Error(err)
		}
		if got := reply.Header.Get("Server"); got != name {
			t.Errorf("answered by %s, want %s", got, name)
		}
		node.Forward(t, "127.0.0.1:18000", relayed.Address)
		err := node.netns.do(func() error {
			answer, err := Raw("127.0.0.1:18000", "GET / HTTP/1.0\r\n\r\n", 5*time.Second)
			if !strings.Contains(answer, `"service":"relayed"`) {
				t.Errorf("through the relay: %q", answer)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestBackendTLSAndStop(t *testing.T) {
	ca := NewAuthority(t, "backends")
	pair := ca.Issue(t, CertOptions{Hosts: []string{"backend.example"}})
	b := StartBackend(t, BackendOptions{Service: "secure", TLS: serverTLS(t, pair)})
	c := NewClient(t, ClientOptions{HTTPS: b.Address, TLS: clientTLS(ca), HTTP2: true, NewConnections: true})
	reply := c.MustGet(t, "https://backend.example/")
	if !reply.Echo.TLS || reply.Echo.SNI != "backend.example" || reply.Echo.Proto != "HTTP/2.0" {
		t.Errorf("echo = %+v", reply.Echo)
	}
	b.Stop()
	if _, err := c.Get("https://backend.example/"); err == nil {
		t.Error("a stopped backend answers")
	}
	b.Start(t)
	c.Expect(t, 5*time.Second, "https://backend.example/", http.StatusOK, "secure")
}
