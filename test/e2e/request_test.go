package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fairway/test/rig"
)

// httpAddress is where the lab's Envoy takes plain HTTP.
func httpAddress() string {
	return net.JoinHostPort(lab.envoy.IP, strconv.Itoa(lab.fairway.HTTPPort))
}

// httpsAddress is where the lab's Envoy takes TLS.
func httpsAddress() string {
	return net.JoinHostPort(lab.envoy.IP, strconv.Itoa(lab.fairway.HTTPSPort))
}

// connect opens a connection to the lab that ends with the test.
func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, wait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// raw sends a request as it is written, byte for byte, and reads the answer.
// It is for requests that no client would send.
func raw(t *testing.T, request string) *rig.Reply {
	t.Helper()
	return rawTo(t, httpAddress(), request)
}

// rawTo is raw for another address.
func rawTo(t *testing.T, address, request string) *rig.Reply {
	t.Helper()
	conn := connect(t, address)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("answer to %.80q: %v", request, err)
	}
	answer, err := readReply(response)
	if err != nil {
		t.Fatalf("answer to %.80q: %v", request, err)
	}
	return answer
}

// readReply reads the rest of an answer.
func readReply(response *http.Response) (*rig.Reply, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return reply(response, body), nil
}

// rawGet asks for a target over HTTP/1.1, neither of them checked or changed.
func rawGet(t *testing.T, host, target string, headers ...string) *rig.Reply {
	t.Helper()
	lines := append([]string{"GET " + target + " HTTP/1.1", "Host: " + host}, headers...)
	return raw(t, strings.Join(lines, "\r\n")+"\r\n\r\n")
}

func reply(response *http.Response, body []byte) *rig.Reply {
	r, echo := &rig.Reply{Response: response, Body: body}, new(rig.Echo)
	if json.Unmarshal(body, echo) == nil && echo.Pod != "" {
		r.Echo = echo
	}
	return r
}

// errReset says that Envoy ended an HTTP/2 stream or connection instead of
// answering.
var errReset = errors.New("reset")

// rawH2 sends one HTTP/2 request over a connection of its own, whose header
// fields are exactly the given ones in their order, and reads the answer. It
// returns errReset if there is none.
func rawH2(t *testing.T, fields []hpack.HeaderField, body []byte) (*rig.Reply, error) {
	t.Helper()
	return readH2(sendH2(t, fields, body))
}

// sendH2 is the first half of rawH2: Envoy takes a second to end a connection
// after a fault, so tests send all requests before they read the first answer.
func sendH2(t *testing.T, fields []hpack.HeaderField, body []byte) *http2.Framer {
	t.Helper()
	conn := connect(t, httpAddress())
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, bufio.NewReader(conn))
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.AllowIllegalWrites = true
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		framer.WriteSettings(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == nil}),
	)
	if body != nil {
		err = errors.Join(err, framer.WriteData(1, true, body))
	}
	if err != nil {
		t.Fatal(err)
	}
	return framer
}

// readH2 reads the answer on the first stream.
func readH2(framer *http2.Framer) (*rig.Reply, error) {
	response := &http.Response{Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}}
	var body bytes.Buffer
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errReset
		}
		if err != nil {
			return nil, err
		}
		ended := false
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			response.StatusCode, err = strconv.Atoi(f.PseudoValue("status"))
			if err != nil {
				return nil, fmt.Errorf("status: %w", err)
			}
			for _, h := range f.RegularFields() {
				response.Header.Add(h.Name, h.Value)
			}
			ended = f.StreamEnded()
		case *http2.DataFrame:
			body.Write(f.Data())
			ended = f.StreamEnded()
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return nil, errReset
		}
		if ended {
			return reply(response, body.Bytes()), nil
		}
	}
}

// h2Get returns the header fields of a request for a target.
func h2Get(host, target string, more ...hpack.HeaderField) []hpack.HeaderField {
	return append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: host}, {Name: ":path", Value: target},
	}, more...)
}

// handshake greets an address with TLS and returns the connection, or why there
// is none. The certificate is not verified: tests look at it.
func handshake(t *testing.T, address string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	config = config.Clone()
	config.InsecureSkipVerify = true
	conn := tls.Client(connect(t, address), config)
	return conn, conn.Handshake()
}

// presented returns the common name of the certificate that an address shows
// for a server name; "" sends none.
func presented(t *testing.T, address, serverName string) string {
	t.Helper()
	conn, err := handshake(t, address, &tls.Config{ServerName: serverName})
	if err != nil {
		t.Fatalf("handshake for %q: %v", serverName, err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}
