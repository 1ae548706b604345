package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"

	"fairway/test/rig"
)

// socket is a websocket that a test keeps open.
type socket struct {
	url  string
	conn *websocket.Conn
}

// alive exchanges a message.
func (s *socket) alive() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if err := s.conn.WriteMessage(websocket.TextMessage, []byte("ping")); err != nil {
		return err
	}
	_, _, err := s.conn.ReadMessage()
	return err
}

// New hosts and certificates drain nobody else's connections (t1).
func TestListenersDrainNobody(t *testing.T) {
	t.Parallel()
	s := startSide(t, "drain")
	webService(t, "drain")
	certificate(t, "drain", "exact", "exact", "exact.drain.test")
	certificate(t, "drain", "wild", "wild", "*.wild.drain.test")
	certificate(t, "drain", "spare", "spare", "moved.drain.test")
	s.tlsSite(t, "drain", "exact.drain.test", "exact")
	s.tlsSite(t, "drain", "a.wild.drain.test", "wild")
	s.tlsSite(t, "drain", "none.drain.test", "absent")
	s.tlsSite(t, "drain", "moved.drain.test", "exact")
	sockets := []*socket{}
	for _, host := range []string{"exact.drain.test", "a.wild.drain.test", "none.drain.test", "moved.drain.test"} {
		sockets = append(sockets, s.openSocket(t, "https://"+host+"/"))
	}
	const filter = `listener_removed|listener_create_failure|total_listeners_draining|lds.update_rejected`
	before := s.envoy.Stats(t, filter)
	for _, change := range []struct {
		what string
		do   func()
	}{
		{"a host with a new certificate", func() {
			certificate(t, "drain", "new", "new", "new.drain.test")
			s.tlsSite(t, "drain", "new.drain.test", "new")
		}},
		{"a host joins a certificate", func() { s.tlsSite(t, "drain", "b.wild.drain.test", "wild") }},
		{"a host without a certificate", func() { s.apply(t, ingress("drain", "plain", "plain.drain.test/ web:80")) }},
		{"a host moves to another certificate", func() {
			s.tlsSite(t, "drain", "moved.drain.test", "spare")
			shows(t, wait, s.https(), "moved.drain.test", "spare")
		}},
		{"a host and its certificate go", func() {
			lab.kube.Delete(t, ingress("drain", "new-drain-test"))
			shows(t, wait, s.https(), "new.drain.test", fallbackName)
		}},
	} {
		change.do()
		if err := sockets[0].alive(); err != nil {
			t.Errorf("%s: %v", change.what, err)
		}
	}
	// Envoy closes what it drains after a second, or two for the slack.
	time.Sleep(2500 * time.Millisecond)
	for _, socket := range sockets {
		if err := socket.alive(); err != nil {
			t.Errorf("%s was closed: %v", socket.url, err)
		}
	}
	s.unchanged(t, before, filter)
	n := s.envoy.Stats(t, "listener_manager.listener_(modified|in_place_updated)")
	if modified, inPlace := n["listener_manager.listener_modified"], n["listener_manager.listener_in_place_updated"]; modified != inPlace {
		t.Errorf("of %d changes of listeners only %d were in place", modified, inPlace)
	}
}

// visit shakes hands once and returns the number in the certificate's name.
func visit(address, serverName string) (int64, error) {
	conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: serverName, InsecureSkipVerify: true})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var n int64
	_, err = fmt.Sscanf(conn.ConnectionState().PeerCertificates[0].Subject.CommonName, "version %d", &n)
	return n, err
}

// Rotation is invisible: no handshake fails, none sees an older certificate
// after a newer one, no connection is closed (t2).
func TestRotation(t *testing.T) {
	t.Parallel()
	s := startSide(t, "rotation")
	webService(t, "rotation")
	certificate(t, "rotation", "cert", "version 0", "rotation.test")
	s.tlsSite(t, "rotation", "rotation.test", "cert")
	sockets := []*socket{s.openSocket(t, "https://rotation.test/"), s.openSocket(t, "https://rotation.test/")}
	long, err := s.client(t).Open(deadline(t), "GET", "https://rotation.test/bytes?n=50000000", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer long.Body.Close()
	const filter = `listener_modified|listener_in_place_updated|draining|lds.update_(success|rejected)|sds.*rejected`
	before := s.envoy.Stats(t, filter)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	var handshakes atomic.Int64
	for range 3 {
		running.Go(func() {
			for last := int64(0); ctx.Err() == nil; handshakes.Add(1) {
				n, err := visit(s.https(), "rotation.test")
				if err != nil || n < last {
					t.Errorf("version %d after %d: %v", n, last, err)
					return
				}
				last = n
			}
		})
	}
	for i := 1; i <= 30; i++ {
		certificate(t, "rotation", "cert", fmt.Sprintf("version %d", i), "rotation.test")
		shows(t, soon, s.https(), "rotation.test", fmt.Sprintf("version %d", i))
	}
	cancel()
	running.Wait()
	t.Logf("%d handshakes", handshakes.Load())
	for _, socket := range sockets {
		if err := socket.alive(); err != nil {
			t.Error(err)
		}
	}
	if n, err := io.Copy(io.Discard, long.Body); n != 50000000 || err != nil {
		t.Errorf("a long answer ended after %d bytes: %v", n, err)
	}
	s.unchanged(t, before, filter)
}

// The default certificate is for clients that name no server, or one that has no
// certificate. As long as it is missing or broken, the fallback takes its place.
func TestDefaultCertificate(t *testing.T) {
	t.Parallel()
	s := startSide(t, "default-certificate", "--default-ssl-certificate=default-certificate/wanted")
	webService(t, "default-certificate")
	certificate(t, "default-certificate", "own", "own", "own.default.test")
	s.tlsSite(t, "default-certificate", "own.default.test", "own")
	s.tlsSite(t, "default-certificate", "absent.default.test", "absent")
	s.apply(t, ingress("default-certificate", "plain", "plain.default.test/ web:80"))
	expect := func(name string) {
		t.Helper()
		shows(t, soon, s.https(), "", name)
		for _, serverName := range []string{"unknown.test", "absent.default.test", "plain.default.test"} {
			if got := presented(t, s.https(), serverName); got != name {
				t.Errorf("%s shows %q, want %q", serverName, got, name)
			}
		}
		if got := presented(t, s.https(), "own.default.test"); got != "own" {
			t.Errorf("a host with a certificate shows %q", got)
		}
		s.client(t).Expect(t, wait, "https://plain.default.test/", 200, "web")
	}
	expect(fallbackName)
	certificate(t, "default-certificate", "wanted", "wanted", "default.test")
	expect("wanted")
	open := s.openSocket(t, "https://plain.default.test/")
	certificate(t, "default-certificate", "wanted", "wanted, rotated", "default.test")
	expect("wanted, rotated")
	broken := rig.TLSSecret("default-certificate", "wanted", rig.Pair{CertPEM: []byte("garbage"), KeyPEM: []byte("garbage")})
	lab.kube.ApplyObjects(t, broken)
	expect(fallbackName)
	certificate(t, "default-certificate", "wanted", "wanted, repaired", "default.test")
	expect("wanted, repaired")
	lab.kube.DeleteObjects(t, &corev1.Secret{ObjectMeta: broken.ObjectMeta})
	expect(fallbackName)
	if err := open.alive(); err != nil {
		t.Errorf("a connection of the default certificate was closed: %v", err)
	}
}
