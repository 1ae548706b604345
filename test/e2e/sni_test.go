package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"fairway/test/rig"
)

const fallbackName = "Fairway fallback certificate"

// Which certificate a server name gets. Whatever a client calls the server, the
// configuration goes on arriving: names from clients reach no resource name.
func TestServerNames(t *testing.T) {
	t.Parallel()
	tlsSite(t, "sni-exact", "exact.sni.test")
	tlsSite(t, "sni-wild", "*.sni.test")
	tlsSite(t, "sni-deep", "*.deep.sni.test")
	site(t, "sni-update", "sni-update.test", 1)
	for name, want := range map[string]string{
		"exact.sni.test":           "exact.sni.test",
		"EXACT.Sni.TEST":           "exact.sni.test",
		"x.sni.test":               "*.sni.test",
		"X.SNI.test":               "*.sni.test",
		"deep.sni.test":            "*.sni.test",
		"x.deep.sni.test":          "*.deep.sni.test",
		"sni.test":                 fallbackName,
		"xsni.test":                fallbackName,
		"":                         fallbackName,
		"unknown.test":             fallbackName,
		"127.0.0.1":                fallbackName,
		"\xff":                     fallbackName,
		"\xff\xfe.test":            fallbackName,
		"*":                        fallbackName,
		"default":                  fallbackName,
		"sni-exact/cert":           fallbackName,
		"xdstp://auth/x":           fallbackName,
		"\xff.sni.test":            "*.sni.test",
		"*.sni.test":               "*.sni.test",
		strings.Repeat("x", 200):   fallbackName,
		"exact.sni.test\r\nX: y":   fallbackName,
		"exact.sni.test/../secret": fallbackName,
	} {
		if got := presented(t, httpsAddress(), name); got != want {
			t.Errorf("%.40q gets %q, want %q", name, got, want)
		}
	}
	movesSoon(t, "sni-update", "sni-update.test")
	if n := lab.envoy.Stat(t, "control_plane.connected_state"); n != 1 {
		t.Errorf("connected_state is %d", n)
	}
}

// The server name chooses the certificate, the Host header the route: a name
// deeper than a wildcard gets the certificate and no route, and hosts without
// TLS are served with the default certificate.
func TestServerNameIsNotHost(t *testing.T) {
	t.Parallel()
	tlsSite(t, "foreign-wild", "*.foreign.test")
	site(t, "foreign-plain", "foreign-plain.test", 1)
	for _, c := range []struct {
		serverName, host string
		status           int
	}{
		{"x.foreign.test", "x.foreign.test", 200},
		{"x.foreign.test", "y.foreign.test:8443", 200},
		{"x.foreign.test", "X.Foreign.Test", 200},
		{"x.y.foreign.test", "x.y.foreign.test", 404},
		{"x.foreign.test", "foreign-plain.test", 200},
		{"", "x.foreign.test", 200},
		{"unknown.test", "foreign-plain.test", 200},
		{"unknown.test", "unknown.test", 404},
	} {
		for _, h2 := range []bool{false, true} {
			own := lab.fairway.Client(t, lab.envoy, rig.ClientOptions{HTTP2: h2, TLS: &tls.Config{ServerName: c.serverName, InsecureSkipVerify: true}})
			if err := own.MustGet(t, "https://"+c.host+"/").Check(c.status, ""); err != nil {
				t.Errorf("h2=%v, %q, %q: %v", h2, c.serverName, c.host, err)
			}
		}
	}
}

// Browsers send requests for all hosts of a wildcard certificate over one
// connection (A10).
func TestCoalescedConnection(t *testing.T) {
	t.Parallel()
	lab.kube.Namespace(t, "coalesced")
	lab.kube.ApplyObjects(t, rig.TLSSecret("coalesced", "wild", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"*.coalesced.test"}})))
	for _, s := range []string{"s1", "s2"} {
		lab.kube.ApplyObjects(t, rig.Service("coalesced", s), rig.SliceOf("coalesced", s, rig.StartBackends(t, s, 1)...))
		lab.kube.Apply(t, tlsIngress("coalesced", s, "wild", []string{s + ".coalesced.test"}, s+".coalesced.test/ "+s+":80"))
		client(t).Expect(t, wait, "https://"+s+".coalesced.test/", 200, s)
	}
	transport := &http.Transport{
		Protocols:       new(http.Protocols),
		TLSClientConfig: &tls.Config{ServerName: "s1.coalesced.test", InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, httpsAddress())
		},
	}
	transport.Protocols.SetHTTP2(true)
	h2, err := transport.NewClientConn(deadline(t), "https", "s1.coalesced.test:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h2.Close() })
	for _, s := range []string{"s1", "s2", "s1"} {
		request, err := http.NewRequestWithContext(deadline(t), http.MethodGet, "https://"+s+".coalesced.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := h2.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readReply(response)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Check(200, s); err != nil || got.ProtoMajor != 2 {
			t.Errorf("%s: %v", got.Proto, err)
		}
	}
}

// What a client may negotiate: TLS 1.2 with forward secrecy and up, and both
// versions of HTTP.
func TestTLSOptions(t *testing.T) {
	t.Parallel()
	tlsSite(t, "tls-options", "options.test")
	for name, c := range map[string]struct {
		config   *tls.Config
		version  uint16 // 0: no handshake
		protocol string
	}{
		"TLS 1.0":                 {config: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}},
		"TLS 1.1":                 {config: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}},
		"TLS 1.2":                 {&tls.Config{MaxVersion: tls.VersionTLS12}, tls.VersionTLS12, ""},
		"TLS 1.3":                 {&tls.Config{MinVersion: tls.VersionTLS13}, tls.VersionTLS13, ""},
		"any version":             {&tls.Config{MinVersion: tls.VersionTLS10}, tls.VersionTLS13, ""},
		"a cipher of CBC":         {config: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}}},
		"no forward secrecy":      {config: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}}},
		"h2 first":                {&tls.Config{NextProtos: []string{"h2", "http/1.1"}}, tls.VersionTLS13, "h2"},
		"http/1.1 first":          {&tls.Config{NextProtos: []string{"http/1.1", "h2"}}, tls.VersionTLS13, "h2"},
		"http/1.1":                {&tls.Config{NextProtos: []string{"http/1.1"}}, tls.VersionTLS13, "http/1.1"},
		"a protocol nobody knows": {&tls.Config{NextProtos: []string{"acme-tls/1", "http/1.1"}}, tls.VersionTLS13, "http/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.ServerName = "options.test"
			conn, err := handshake(t, httpsAddress(), c.config)
			if c.version == 0 {
				if err == nil {
					t.Errorf("the handshake succeeds with %x", conn.ConnectionState().CipherSuite)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := conn.ConnectionState(); s.Version != c.version || s.NegotiatedProtocol != c.protocol {
				t.Errorf("version %x, protocol %q", s.Version, s.NegotiatedProtocol)
			}
		})
	}
}

// oneSession keeps the last session, whoever asks.
type oneSession struct{ last *tls.ClientSessionState }

func (o *oneSession) Get(string) (*tls.ClientSessionState, bool)    { return o.last, o.last != nil }
func (o *oneSession) Put(_ string, session *tls.ClientSessionState) { o.last = session }

// Sessions are resumed, in the version they were made in, and not at a host with
// another certificate.
func TestSessionResumption(t *testing.T) {
	t.Parallel()
	tlsSite(t, "session-a", "session-a.test")
	tlsSite(t, "session-b", "session-b.test")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cache := &oneSession{}
		visit := func(host string) tls.ConnectionState {
			config := &tls.Config{MaxVersion: version, ClientSessionCache: cache, ServerName: host, InsecureSkipVerify: true}
			conn, err := handshake(t, httpsAddress(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// A ticket of TLS 1.3 comes with the answer.
			if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			return conn.ConnectionState()
		}
		first, again := visit("session-a.test"), visit("session-a.test")
		if first.DidResume || !again.DidResume || again.Version != version {
			t.Errorf("%x: resumed %v and then %v with %x", version, first.DidResume, again.DidResume, again.Version)
		}
		if other := visit("session-b.test"); other.DidResume || other.PeerCertificates[0].Subject.CommonName != "session-b.test" {
			t.Errorf("%x: another host resumes the session", version)
		}
	}
}
