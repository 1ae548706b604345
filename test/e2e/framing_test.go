package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fairway/test/rig"
)

// Requests whose beginning, end or target could be read in two ways are refused
// before a backend sees them.
func TestFraming(t *testing.T) {
	t.Parallel()
	pods := site(t, "framing", "framing.test", 1)
	const get, post, host = "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "Host: framing.test\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"length and chunks":                 {post + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"two lengths":                       {post + host + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody!", 400},
		"two lengths in one":                {post + host + "Content-Length: 4, 5\r\n\r\nbody!", 400},
		"a signed length":                   {post + host + "Content-Length: +4\r\n\r\nbody", 400},
		"a negative length":                 {post + host + "Content-Length: -1\r\n\r\n", 400},
		"a length in hexadecimal":           {post + host + "Content-Length: 0x4\r\n\r\nbody", 400},
		"space before the colon":            {post + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		"an unknown coding":                 {post + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		"chunked twice":                     {post + host + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501},
		"an unknown coding after chunked":   {post + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501},
		"a zero byte in a header":           {get + host + "X: a\x00b\r\n\r\n", 400},
		"a zero byte in a name":             {get + host + "X\x00: a\r\n\r\n", 400},
		"two equal lengths":                 {post + host + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody", 400},
		"a host with a user":                {get + "Host: user@framing.test\r\n\r\n", 404},
		"HTTP/0.9":                          {"GET /\r\n\r\n", 404},
		"no host":                           {get + "\r\n", 400},
		"a host with a path":                {get + "Host: framing.test/x\r\n\r\n", 400},
		"a header without a colon":          {get + host + "Nothing\r\n\r\n", 400},
		"the client asks to drop a header":  {get + host + "Connection: x-forwarded-for\r\n\r\n", 400},
		"a method with a space":             {"GE T / HTTP/1.1\r\n" + host + "\r\n", 400},
		"CONNECT":                           {"CONNECT framing.test:443 HTTP/1.1\r\nHost: framing.test:443\r\n\r\n", 404},
		"a tunnel to the inside of a proxy": {"GET http://127.0.0.1:9901/ HTTP/1.1\r\n" + host + "\r\n", 404},
	} {
		t.Run(name, func(t *testing.T) {
			before := pods[0].Requests()
			reply := raw(t, c.request)
			if reply.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s", reply.StatusCode, c.status, reply.Body)
			}
			if name := reply.Header.Get("Server"); name != "" && name != "fairway" || bytes.Contains(reply.Body, []byte("nvoy")) {
				t.Errorf("the answer says who it is: %s, %q", name, reply.Body)
			}
			if pods[0].Requests() != before {
				t.Error("the backend saw the request")
			}
		})
	}
}

// Requests that are odd and have one meaning pass, and the backend sees the host
// that the route was chosen by.
func TestOddFraming(t *testing.T) {
	t.Parallel()
	site(t, "lenient", "lenient.test", 1)
	lab.kube.Apply(t, ingress("lenient", "wild", "*.lenient.test/ web:80"))
	client(t).Expect(t, wait, "http://x.lenient.test/", 200, "web")
	for name, c := range map[string]struct {
		request string
		check   func(*rig.Echo) bool
	}{
		"bare line feeds": {"GET / HTTP/1.1\nHost: lenient.test\nX-A: 1\nX-B: 2\n\n",
			func(e *rig.Echo) bool {
				return e.Host == "lenient.test" && e.Header("X-A") == "1" && e.Header("X-B") == "2"
			}},
		"the target's host wins": {"GET http://lenient.test/x HTTP/1.1\r\nHost: other.test\r\n\r\n",
			func(e *rig.Echo) bool { return e.Host == "lenient.test" && e.Path == "/x" }},
		"a lone carriage return": {"GET / HTTP/1.1\r\nHost: lenient.test\r\nX-A: 1\rX-B: 2\r\n\r\n",
			func(e *rig.Echo) bool { return e.Header("X-A") == "1X-B: 2" && e.Header("X-B") == "" }},
		"a folded line": {"GET / HTTP/1.1\r\nHost: lenient.test\r\nX-A: 1\r\n X-B: 2\r\n\r\n",
			func(e *rig.Echo) bool { return e.Header("X-A") == "1 X-B: 2" && e.Header("X-B") == "" }},
		"chunks with extensions and trailers": {"POST / HTTP/1.1\r\nHost: lenient.test\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nbody\r\n0\r\nX-T: 1\r\n\r\n",
			func(e *rig.Echo) bool { return e.BodyBytes == 4 && e.Header("X-T") == "" }},
		"91 headers": {"GET / HTTP/1.1\r\nHost: lenient.test\r\n" + strings.Repeat("X-A: 1\r\n", 91) + "\r\n",
			func(e *rig.Echo) bool { return len(e.Headers["X-A"]) == 91 }},
	} {
		t.Run(name, func(t *testing.T) {
			reply := raw(t, c.request)
			if err := reply.Check(200, "web"); err != nil {
				t.Fatal(err)
			}
			if !c.check(reply.Echo) {
				t.Errorf("the backend got %+v", reply.Echo)
			}
		})
	}
	// Envoy joins two Host headers to one value, which is no host's name.
	for _, hosts := range [][2]string{{"lenient.test", "evil.test"}, {"evil.test", "lenient.test"}, {"a.lenient.test", "b.lenient.test"}, {"evil.test", "b.lenient.test"}} {
		reply := raw(t, fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nHost: %s\r\n\r\n", hosts[0], hosts[1]))
		if err := reply.Check(404, ""); err != nil {
			t.Errorf("hosts %v: %v", hosts, err)
		}
	}
}

// The same for HTTP/2, where Envoy answers or ends the stream.
func TestFramingOfHTTP2(t *testing.T) {
	t.Parallel()
	pods := site(t, "framing-h2", "framing-h2.test", 1)
	before := pods[0].Requests()
	field := func(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }
	base := h2Get("framing-h2.test", "/")
	sent := map[string]*http2.Framer{}
	for name, c := range map[string]struct {
		fields []hpack.HeaderField
		body   []byte
	}{
		"chunks":                           {append(base[:4:4], field("transfer-encoding", "chunked")), nil},
		"a connection header":              {append(base[:4:4], field("connection", "close")), nil},
		"an upgrade":                       {append(base[:4:4], field("upgrade", "h2c")), nil},
		"an upper-case name":               {append(base[:4:4], field("X-Upper", "1")), nil},
		"a line feed in a header":          {append(base[:4:4], field("x-a", "1\r\nx-b: 2")), nil},
		"a zero byte in a header":          {append(base[:4:4], field("x-a", "1\x002")), nil},
		"a colon in a name":                {append(base[:4:4], field("x:y", "1")), nil},
		"a pseudo-header after the others": {append([]hpack.HeaderField{base[0], base[1], base[2], field("x-a", "1")}, base[3]), nil},
		"an unknown pseudo-header":         {append(base[:4:4], field(":evil", "1")), nil},
		"two paths":                        {append(base[:4:4], field(":path", "/admin")), nil},
		"two authorities":                  {append(base[:4:4], field(":authority", "evil.test")), nil},
		"no path":                          {base[:3:3], nil},
		"an empty path":                    {append(base[:3:3], field(":path", "")), nil},
		"a target with a space":            {append(base[:3:3], field(":path", "/ HTTP/1.1")), nil},
		"a method with a line feed":        {append([]hpack.HeaderField{field(":method", "GET / HTTP/1.1\r\nX: y")}, base[1:]...), nil},
		"a body longer than said":          {append(base[:4:4], field("content-length", "1")), []byte("longer")},
		"a body shorter than said":         {append(base[:4:4], field("content-length", "9")), []byte("shorter")},
	} {
		sent[name] = sendH2(t, c.fields, c.body)
	}
	for name, framer := range sent {
		if reply, err := readH2(framer); err == nil && reply.StatusCode != 400 {
			t.Errorf("%s: status %d: %s", name, reply.StatusCode, reply.Body)
		}
	}
	// Only a body's end shows that its length is wrong, too late to send nothing.
	if n := pods[0].Requests() - before; n > 2 {
		t.Errorf("the backend saw %d requests", n)
	}
	// A Host header beside :authority does not decide and does not pass.
	reply, err := rawH2(t, append(base[:4:4], field("host", "evil.test")), nil)
	if err == nil && reply.StatusCode == 200 && reply.Echo.Host != "framing-h2.test" {
		t.Errorf("the backend got the host %q", reply.Echo.Host)
	}
}
