package rig

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// Echo is what a backend answers: who it is and what it received.
type Echo struct {
	Service   string              `json:"service"`
	Pod       string              `json:"pod"`
	Method    string              `json:"method"`
	Host      string              `json:"host"`
	Path      string              `json:"path"` // request target as it came, with its query
	Proto     string              `json:"proto"`
	Headers   map[string][]string `json:"headers"`
	BodyBytes int64               `json:"bodyBytes"`
	TLS       bool                `json:"tls"`
	SNI       string              `json:"sni,omitempty"`
	Peer      string              `json:"peer"` // address of the connection's other end
}

// Header returns the first value of a header that the backend received.
func (e *Echo) Header(name string) string { return http.Header(e.Headers).Get(name) }

// serve answers one request.
func (b *Backend) serve(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	if b.options.OnRequest != nil {
		b.options.OnRequest(r)
	}
	if b.options.Handler != nil {
		watched := &writeWatcher{ResponseWriter: w}
		if b.options.Handler(watched, r); watched.written {
			return
		}
	}
	w.Header().Set("X-Backend-Pod", b.Pod)
	switch {
	case r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		b.grpc.ServeHTTP(w, r)
	case websocket.IsWebSocketUpgrade(r):
		echoWebSocket(w, r)
	case r.URL.Path == "/sse":
		streamEvents(w, r)
	case r.URL.Path == "/bytes":
		writeBytes(w, number(r, "n"))
	default:
		b.answer(w, r)
	}
}

// answer writes the echo, after the delay and with the status that the request
// asks for.
func (b *Backend) answer(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status := http.StatusOK
	switch r.URL.Path {
	case "/status":
		status = number(r, "code")
	case "/slow":
		select {
		case <-time.After(time.Duration(number(r, "ms")) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	body, err := json.Marshal(b.echo(r, n))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// An error means that the client has gone.
	_, _ = w.Write(body)
}

func (b *Backend) echo(r *http.Request, bodyBytes int64) Echo {
	e := Echo{
		Service: b.Service, Pod: b.Pod, Method: r.Method, Host: r.Host, Path: r.RequestURI, Proto: r.Proto,
		Headers: r.Header, BodyBytes: bodyBytes, Peer: r.RemoteAddr,
	}
	if r.TLS != nil {
		e.TLS, e.SNI = true, r.TLS.ServerName
	}
	return e
}

func number(r *http.Request, key string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(key))
	if err != nil {
		return http.StatusOK
	}
	return n
}

// echoWebSocket sends every message back.
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, http.Header{"X-Backend-Pod": w.Header()["X-Backend-Pod"]})
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := conn.WriteMessage(kind, message); err != nil {
			return
		}
	}
}

// streamEvents sends a server-sent event every 50 ms until the client goes.
func streamEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	control := http.NewResponseController(w)
	for i := 1; ; i++ {
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %d\n\n", i, i); err != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

func writeBytes(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	// An error means that the client has gone.
	_, _ = io.Copy(w, io.LimitReader(zeros{}, int64(n)))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// writeWatcher notes whether a handler has answered.
type writeWatcher struct {
	http.ResponseWriter
	written bool
}

func (w *writeWatcher) WriteHeader(status int) {
	w.written = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *writeWatcher) Write(p []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *writeWatcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }
