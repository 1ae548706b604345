package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairway/test/rig"
)

// siteOf is site for one backend of the test's own, whose Service port names an
// application protocol unless it is empty. It does not wait.
func siteOf(t *testing.T, namespace, host, appProtocol string, pod *rig.Backend) {
	t.Helper()
	lab.kube.Namespace(t, namespace)
	port := rig.ServicePort("", 80)
	if appProtocol != "" {
		port.AppProtocol = &appProtocol
	}
	lab.kube.ApplyObjects(t, rig.Service(namespace, "web", port), rig.SliceOf(namespace, "web", pod))
	lab.kube.Apply(t, ingress(namespace, "web", host+"/ web:80"))
}

// deadline is a context for everything that must be over before the test's
// patience is.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	t.Cleanup(cancel)
	return ctx
}

// HTTP/1.0 clients are served, those that name no host by the catch-all host
// (A35).
func TestHTTP10(t *testing.T) {
	t.Parallel()
	site(t, "http10", "http10.test", 1)
	reply := raw(t, "GET /x HTTP/1.0\r\nHost: http10.test\r\n\r\n")
	if err := reply.Check(200, "web"); err != nil {
		t.Error(err)
	}
	if reply.Echo != nil && (reply.Echo.Path != "/x" || reply.Echo.Host != "http10.test") {
		t.Errorf("the backend got %s of %s", reply.Echo.Path, reply.Echo.Host)
	}
	if err := raw(t, "GET / HTTP/1.0\r\n\r\n").Check(404, ""); err != nil {
		t.Errorf("without Host: %v", err)
	}
}

// Both kinds of HTTP/2 reach a backend of HTTP/1.1.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	site(t, "http2", "http2.test", 1)
	c := lab.fairway.Client(t, lab.envoy, rig.ClientOptions{HTTP2: true})
	for _, url := range []string{"http://http2.test/a?b=c", "https://http2.test/a?b=c"} {
		reply := c.MustGet(t, url, rig.Header("Cookie", "a=1; b=2"))
		if err := reply.Check(200, "web"); err != nil {
			t.Fatal(err)
		}
		e := reply.Echo
		if reply.Proto != "HTTP/2.0" || e.Proto != "HTTP/1.1" || e.Path != "/a?b=c" || e.Host != "http2.test" || e.Header("Cookie") != "a=1; b=2" {
			t.Errorf("%s: %s, the backend got %+v", url, reply.Proto, e)
		}
	}
}

// An upgrade to HTTP/2 without TLS is not passed on: what follows it would be
// requests that nobody checked.
func TestUpgradeToHTTP2IsIgnored(t *testing.T) {
	t.Parallel()
	site(t, "h2c-upgrade", "h2c-upgrade.test", 1)
	reply := rawGet(t, "h2c-upgrade.test", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
	if err := reply.Check(200, "web"); err != nil {
		t.Fatal(err)
	}
	if e := reply.Echo; e.Proto != "HTTP/1.1" || e.Header("Upgrade") != "" || e.Header("Http2-Settings") != "" {
		t.Errorf("the backend got %s, Upgrade %q", e.Proto, e.Header("Upgrade"))
	}
}

// A Service port says what its endpoints speak.
func TestApplicationProtocols(t *testing.T) {
	t.Parallel()
	cert := rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"backend.internal"}})
	for name, c := range map[string]struct {
		protocol string
		tls      bool
		proto    string
	}{
		"h2c":     {"kubernetes.io/h2c", false, "HTTP/2.0"},
		"https":   {"https", true, "HTTP/1.1"},
		"wss":     {"kubernetes.io/wss", true, "HTTP/1.1"},
		"ws":      {"kubernetes.io/ws", false, "HTTP/1.1"},
		"http":    {"http", false, "HTTP/1.1"},
		"unknown": {"example.com/own", false, "HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := rig.BackendOptions{Service: "web"}
			if c.tls {
				o.TLS = &tls.Config{Certificates: []tls.Certificate{cert.TLS(t)}}
			}
			host := name + ".protocol.test"
			siteOf(t, "protocol-"+name, host, c.protocol, rig.StartBackend(t, o))
			client(t).Expect(t, wait, "http://"+host+"/", 200, "web")
			reply := client(t).MustGet(t, "http://"+host+"/")
			if e := reply.Echo; e.Proto != c.proto || e.TLS != c.tls || e.Host != host {
				t.Errorf("the backend got %+v", e)
			}
			if !strings.Contains(c.protocol, "ws") {
				return
			}
			conn, _, err := client(t).WebSocket(deadline(t), "http://"+host+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			echoes(t, conn, []byte("hello"))
		})
	}
}

// echoes sends a message and expects it back.
func echoes(t *testing.T, conn *websocket.Conn, message []byte) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, message); err != nil {
		t.Fatal(err)
	}
	_, got, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, message) {
		t.Fatalf("%d bytes came back as %d others", len(message), len(got))
	}
}

// A websocket carries more than a request body may have.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	site(t, "websocket", "websocket.test", 1)
	for _, scheme := range []string{"http", "https"} {
		conn, response, err := client(t).WebSocket(deadline(t), scheme+"://websocket.test/chat?room=1", http.Header{"Sec-WebSocket-Protocol": {"x"}})
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != 101 || response.Header.Get("Server") != "fairway" {
			t.Errorf("status %d, %v", response.StatusCode, response.Header)
		}
		for range 5 {
			echoes(t, conn, bytes.Repeat([]byte("fairway "), 64<<10))
		}
		conn.Close()
	}
}

// A request that claims to become a websocket and does not is a request like
// any other.
func TestRefusedUpgrade(t *testing.T) {
	t.Parallel()
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "web", Handler: func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			http.Error(w, "no", http.StatusForbidden)
		}
	}})
	siteOf(t, "refused", "refused.test", "", pod)
	client(t).Expect(t, wait, "http://refused.test/", 200, "web")
	reply := rawGet(t, "refused.test", "/", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
	if err := reply.Check(403, ""); err != nil || string(reply.Body) != "no\n" {
		t.Errorf("%v; body %q", err, reply.Body)
	}
}

// gRPC works over both kinds of HTTP/2, unary and streaming, statuses included.
func TestGRPC(t *testing.T) {
	t.Parallel()
	siteOf(t, "grpc", "grpc.test", "kubernetes.io/h2c", rig.StartBackend(t, rig.BackendOptions{Service: "web"}))
	client(t).Expect(t, wait, "http://grpc.test/", 200, "web")
	for _, target := range []string{"http://grpc.test", "https://grpc.test", "http://grpc.test:50051"} {
		t.Run(target, func(t *testing.T) {
			conn := client(t).GRPC(t, target)
			e, err := rig.GRPCEcho(deadline(t), conn, "hello")
			if err != nil {
				t.Fatal(err)
			}
			if e.Service != "web" || e.BodyBytes != 5 || "http://"+e.Host != target && "https://"+e.Host != target {
				t.Errorf("the backend got %+v", e)
			}
			chat(t, conn)
			err = conn.Invoke(deadline(t), "/fairway.rig.Echo/Nothing", new(wrapperspb.StringValue), new(wrapperspb.StringValue))
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("a method that is not there: %v", err)
			}
		})
	}
	// What Envoy answers itself reaches a gRPC client as a status, too.
	_, err := rig.GRPCEcho(deadline(t), client(t).GRPC(t, "http://nobody.test"), "hello")
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a host that is not there: %v", err)
	}
}

// chat exchanges messages over one stream, each before the next.
func chat(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	stream, err := rig.GRPCChat(deadline(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		got, text := new(wrapperspb.StringValue), fmt.Sprint(i)
		if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(got); err != nil || got.Value != text {
			t.Fatalf("message %d came back as %q: %v", i, got.Value, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

// Trailers pass from backends to HTTP/2 clients, and several cookie fields of
// HTTP/2 become one header.
func TestHTTP2Details(t *testing.T) {
	t.Parallel()
	siteOf(t, "details", "details.test", "kubernetes.io/h2c", rig.StartBackend(t, rig.BackendOptions{Service: "web", Handler: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/trailer" {
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
			_, _ = w.Write([]byte("body"))
		}
	}}))
	client(t).Expect(t, wait, "http://details.test/", 200, "web")
	c := lab.fairway.Client(t, lab.envoy, rig.ClientOptions{HTTP2: true})
	if got := c.MustGet(t, "http://details.test/trailer"); string(got.Body) != "body" || got.Trailer.Get("X-Sum") != "42" {
		t.Errorf("body %q, trailers %v", got.Body, got.Trailer)
	}
	reply, err := rawH2(t, h2Get("details.test", "/", hpack.HeaderField{Name: "cookie", Value: "a=1"}, hpack.HeaderField{Name: "cookie", Value: "b=2"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := reply.Echo.Headers["Cookie"]; !slices.Equal(got, []string{"a=1; b=2"}) {
		t.Errorf("the backend got the cookies %q", got)
	}
}
