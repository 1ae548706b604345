package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"fairway/test/rig"
)

// What Fairway answers itself: 404 for what nobody asked for, 503 where there is
// no endpoint, 502 where the endpoint failed.
func TestOwnAnswers(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "answers")
	gone := rig.StartBackend(t, rig.BackendOptions{Service: "refusing"})
	gone.Stop()
	lab.kube.ApplyObjects(t,
		rig.Service("answers", "web"), rig.SliceOf("answers", "web", rig.StartBackends(t, "web", 1)...),
		rig.Service("answers", "refusing"), rig.SliceOf("answers", "refusing", gone),
		rig.Service("answers", "nobody"), rig.Slice("answers", "nobody"),
		rig.Service("answers", "no-slice"),
	)
	lab.kube.Apply(t, ingress("answers", "web",
		"answers.test/web web:80", "answers.test/refusing refusing:80", "answers.test/nobody nobody:80",
		"answers.test/no-slice no-slice:80", "answers.test/no-service missing:80", "answers.test/no-port web:81"))
	client(t).Expect(t, wait, "http://answers.test/web", 200, "web")
	const (
		none   = "no healthy upstream"
		failed = "upstream connect error or disconnect/reset before headers. retried and the latest reset reason: remote connection failure"
	)
	for url, want := range map[string]struct {
		status int
		body   string
	}{
		"http://answers.test/":            {404, ""},
		"http://answers.test/webs":        {404, ""},
		"http://unknown.test/":            {404, ""},
		"http://127.0.0.1/":               {404, ""},
		"http://answers.test/no-service":  {503, ""},
		"http://answers.test/no-port":     {503, ""},
		"http://answers.test/nobody":      {503, none},
		"http://answers.test/no-slice":    {503, none},
		"http://answers.test/refusing":    {502, failed},
		"https://answers.test/":           {404, ""},
		"https://unknown.test/":           {404, ""},
		"https://answers.test/no-service": {503, ""},
		"https://answers.test/refusing":   {502, failed},
	} {
		reply := client(t).MustGet(t, url)
		if reply.StatusCode != want.status || string(reply.Body) != want.body || reply.Header.Get("Server") != "fairway" {
			t.Errorf("%s: %d %q %v, want %+v", url, reply.StatusCode, reply.Body, reply.Header, want)
		}
	}
	client(t).Expect(t, wait, "https://answers.test/web", 200, "web")
}

// server is a backend that does with each connection what a test says. It
// counts the requests that it has read.
type server struct {
	*rig.Backend
	requests atomic.Int64
}

// startServer starts a server behind a pod address of its own.
func startServer(t *testing.T, answer func(net.Conn, *http.Request)) *server {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(rig.PodIP(), strconv.Itoa(rig.PodPort)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &server{Backend: &rig.Backend{Service: "web", Address: l.Addr().String()}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn, answer)
		}
	}()
	return s
}

func (s *server) serve(conn net.Conn, answer func(net.Conn, *http.Request)) {
	defer conn.Close()
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	s.requests.Add(1)
	answer(conn, request)
}

// An endpoint that has read a request may have acted on it: the request is not
// sent again, whatever its method.
func TestRequestsAreNotRepeated(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(net.Conn, *http.Request) {})
	other := startServer(t, func(net.Conn, *http.Request) {})
	lab.kube.Namespace(t, "once")
	lab.kube.ApplyObjects(t, rig.Service("once", "web"), rig.SliceOf("once", "web", s.Backend, other.Backend))
	lab.kube.Apply(t, ingress("once", "web", "once.test/ web:80"))
	client(t).Expect(t, wait, "http://once.test/", 502, "")
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete} {
		before := s.requests.Load() + other.requests.Load()
		reply, err := client(t).Do(deadline(t), method, "http://once.test/", strings.NewReader("order"))
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Check(502, ""); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if n := s.requests.Load() + other.requests.Load() - before; n != 1 {
			t.Errorf("%s reached an endpoint %d times", method, n)
		}
	}
}

// A backend that breaks off in the middle of its answer is not patched up: the
// client sees that the answer is not complete.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(conn net.Conn, r *http.Request) {
		text := map[string]string{
			"/short":   "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
			"/chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
			"/noise":   "what?\r\n\r\n",
			"/":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		}[r.URL.Path]
		_, _ = conn.Write([]byte(text))
	})
	siteOf(t, "broken", "broken.test", "", s.Backend)
	client(t).Expect(t, wait, "http://broken.test/", 200, "")
	for _, path := range []string{"/short", "/chunked"} {
		if reply, err := client(t).Get("http://broken.test" + path); err == nil {
			t.Errorf("%s: a complete answer %d %q", path, reply.StatusCode, reply.Body)
		}
	}
	if err := client(t).MustGet(t, "http://broken.test/noise").Check(502, ""); err != nil {
		t.Errorf("/noise: %v", err)
	}
}

// A request goes to another endpoint as long as no endpoint can have seen it.
func TestRequestsAreTriedElsewhere(t *testing.T) {
	t.Parallel()
	pods := rig.StartBackends(t, "web", 2)
	pods[0].Stop()
	lab.kube.Namespace(t, "elsewhere")
	lab.kube.ApplyObjects(t, rig.Service("elsewhere", "web"), rig.SliceOf("elsewhere", "web", pods...))
	lab.kube.Apply(t, ingress("elsewhere", "web", "elsewhere.test/ web:80"))
	client(t).Expect(t, wait, "http://elsewhere.test/", 200, "web")
	for i := range 20 {
		reply, err := client(t).Do(deadline(t), http.MethodPost, "http://elsewhere.test/", strings.NewReader("order"))
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Check(200, "web"); err != nil || reply.Echo.BodyBytes != 5 {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if n := pods[1].Requests(); n < 20 {
		t.Errorf("the living endpoint got %d requests", n)
	}
}

// A stream that an endpoint refuses is one that it has not looked at: the
// request goes to another, whatever its method.
func TestRefusedStreamsAreTriedElsewhere(t *testing.T) {
	t.Parallel()
	refusing, refused := startRefusing(t)
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "web"})
	lab.kube.Namespace(t, "refused-stream")
	port := rig.ServicePort("", 80)
	port.AppProtocol = new("kubernetes.io/h2c")
	lab.kube.ApplyObjects(t, rig.Service("refused-stream", "web", port), rig.SliceOf("refused-stream", "web", refusing, pod))
	lab.kube.Apply(t, ingress("refused-stream", "web", "refused-stream.test/ web:80"))
	client(t).Expect(t, wait, "http://refused-stream.test/", 200, "web")
	for i := range 20 {
		reply, err := client(t).Do(deadline(t), http.MethodPost, "http://refused-stream.test/", strings.NewReader("order"))
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Check(200, "web"); err != nil || reply.Echo.BodyBytes != 5 {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if refused.Load() == 0 {
		t.Error("the refusing endpoint was not asked")
	}
}

// startRefusing starts an HTTP/2 server that refuses every stream and counts
// them.
func startRefusing(t *testing.T) (*rig.Backend, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(rig.PodIP(), strconv.Itoa(rig.PodPort)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	refused := new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go refuse(conn, refused)
		}
	}()
	return &rig.Backend{Service: "web", Address: l.Addr().String()}, refused
}

func refuse(conn net.Conn, refused *atomic.Int64) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	err := framer.WriteSettings()
	for err == nil {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			refused.Add(1)
			err = framer.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = framer.WritePing(true, f.Data)
			}
		}
	}
}
