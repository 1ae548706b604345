package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// LoadOptions describe background traffic through one proxy. Zero of a kind
// means none of it.
type LoadOptions struct {
	HTTP  string // address that answers http://
	HTTPS string // address that answers https://
	URL   string // what is requested; its scheme picks the address

	NewConnections int           // requests per second, each on a connection of its own
	KeepAlive      int           // clients that send over one kept connection, one request after the other
	HTTP2          int           // the same over HTTP/2
	WebSockets     int           // clients that keep one websocket and send a message every 20 ms
	Events         int           // clients that keep one stream of server-sent events
	Pause          time.Duration // between two requests of a client; default 5 ms

	// Accept decides about an answer; by default its status must be 200.
	Accept func(*Reply) error
}

// Failure is one request, message or stream that went wrong.
type Failure struct {
	Kind string        // "new", "keep", "h2", "websocket" or "sse"
	At   time.Duration // since the load started
	Took time.Duration
	Err  error
}

func (f Failure) String() string {
	return fmt.Sprintf("%8.3fs %-9s after %s: %v", f.At.Seconds(), f.Kind, f.Took.Round(time.Millisecond), f.Err)
}

// LoadResult is what a load has counted.
type LoadResult struct {
	Done     map[string]int // what went well, by kind
	Pods     map[string]int // who answered
	Failures []Failure
	Slowest  time.Duration
}

// Load is traffic in the background.
type Load struct {
	options LoadOptions
	start   time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	result LoadResult
}

// StartLoad starts traffic. It ends with Stop, at the latest with the test.
func StartLoad(t T, o LoadOptions) *Load {
	t.Helper()
	if o.Pause == 0 {
		o.Pause = 5 * time.Millisecond
	}
	if o.Accept == nil {
		o.Accept = func(r *Reply) error { return r.Check(http.StatusOK, "") }
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{
		options: o, start: time.Now(), cancel: cancel,
		result: LoadResult{Done: map[string]int{}, Pods: map[string]int{}},
	}
	l.run(t, ctx)
	t.Cleanup(func() { l.Stop() })
	return l
}

// run starts the clients.
func (l *Load) run(t T, ctx context.Context) {
	o := l.options
	client := func(http2, fresh bool) *Client {
		return NewClient(t, ClientOptions{HTTP: o.HTTP, HTTPS: o.HTTPS, HTTP2: http2, NewConnections: fresh})
	}
	if o.NewConnections > 0 {
		l.running.Go(func() { l.arrivals(ctx, client(false, true)) })
	}
	for range o.KeepAlive {
		l.running.Go(func() { l.requests(ctx, "keep", client(false, false)) })
	}
	for range o.HTTP2 {
		l.running.Go(func() { l.requests(ctx, "h2", client(true, false)) })
	}
	for range o.WebSockets {
		l.running.Go(func() { l.webSocket(ctx, client(false, false)) })
	}
	for range o.Events {
		l.running.Go(func() { l.events(ctx, client(false, false)) })
	}
}

// arrivals starts requests at a fixed rate, however long they take.
func (l *Load) arrivals(ctx context.Context, c *Client) {
	ticker := time.NewTicker(time.Second / time.Duration(l.options.NewConnections))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.running.Go(func() { l.request(ctx, "new", c) })
		}
	}
}

// requests sends one request after the other.
func (l *Load) requests(ctx context.Context, kind string, c *Client) {
	for ctx.Err() == nil {
		l.request(ctx, kind, c)
		pause(ctx, l.options.Pause)
	}
}

func (l *Load) request(ctx context.Context, kind string, c *Client) {
	begin := time.Now()
	reply, err := c.Do(ctx, http.MethodGet, l.options.URL, nil)
	if err == nil {
		err = l.options.Accept(reply)
	}
	pod := ""
	if err == nil && reply.Echo != nil {
		pod = reply.Echo.Pod
	}
	l.count(ctx, kind, pod, begin, err)
}

// webSocket keeps a websocket and opens a new one when it breaks, which counts
// as a failure.
func (l *Load) webSocket(ctx context.Context, c *Client) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := l.messages(ctx, c)
		l.count(ctx, "websocket", "", begin, err)
		pause(ctx, 50*time.Millisecond)
	}
}

func (l *Load) messages(ctx context.Context, c *Client) error {
	conn, response, err := c.WebSocket(ctx, l.options.URL, nil)
	if err != nil {
		if response != nil {
			err = fmt.Errorf("status %d: %w", response.StatusCode, err)
		}
		return err
	}
	defer conn.Close()
	for n := 0; ctx.Err() == nil; n++ {
		begin, message := time.Now(), fmt.Appendf(nil, "%d", n)
		if err := exchange(conn, message); err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		l.count(ctx, "websocket", response.Header.Get("X-Backend-Pod"), begin, nil)
		pause(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}

func exchange(conn *websocket.Conn, message []byte) error {
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if err := conn.WriteMessage(websocket.TextMessage, message); err != nil {
		return err
	}
	_, answer, err := conn.ReadMessage()
	if err == nil && !bytes.Equal(answer, message) {
		err = fmt.Errorf("the answer is %q", answer)
	}
	return err
}

// events keeps a stream of events and opens a new one when it ends, which
// counts as a failure.
func (l *Load) events(ctx context.Context, c *Client) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := l.stream(ctx, c)
		l.count(ctx, "sse", "", begin, err)
		pause(ctx, 50*time.Millisecond)
	}
}

func (l *Load) stream(ctx context.Context, c *Client) error {
	// The client's own timeout would end the stream.
	client := &http.Client{Transport: c.http.Transport}
	forever := &Client{options: c.options, http: client}
	response, err := forever.Open(ctx, http.MethodGet, strings.TrimSuffix(l.options.URL, "/")+"/sse", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	for begin := time.Now(); lines.Scan(); begin = time.Now() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			l.count(ctx, "sse", response.Header.Get("X-Backend-Pod"), begin, nil)
		}
	}
	return errors.Join(errors.New("the stream ended"), lines.Err())
}

// count notes an outcome. What fails because the load ends is no failure.
func (l *Load) count(ctx context.Context, kind, pod string, begin time.Time, err error) {
	took := time.Since(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.result.Done[kind]++
		if pod != "" {
			l.result.Pods[pod]++
		}
		l.result.Slowest = max(l.result.Slowest, took)
	case ctx.Err() == nil:
		l.result.Failures = append(l.result.Failures, Failure{kind, begin.Sub(l.start), took, err})
	}
}

// pause waits, or returns when the load ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Total returns how much went well so far.
func (l *Load) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, done := range l.result.Done {
		n += done
	}
	return n
}

// Stop ends the traffic and returns what it has counted.
func (l *Load) Stop() LoadResult {
	l.cancel()
	l.running.Wait()
	return l.result
}

// MustBeClean stops the traffic and fails the test unless every kind was seen
// and nothing failed.
func (l *Load) MustBeClean(t T) LoadResult {
	t.Helper()
	r := l.Stop()
	o := l.options
	for kind, wanted := range map[string]int{
		"new": o.NewConnections, "keep": o.KeepAlive, "h2": o.HTTP2, "websocket": o.WebSockets, "sse": o.Events,
	} {
		if wanted > 0 && r.Done[kind] == 0 {
			t.Errorf("load: nothing of the kind %q went well", kind)
		}
	}
	if len(r.Failures) > 0 {
		t.Errorf("load: %s", r)
	}
	return r
}

// String summarises the result and shows the first failures.
func (r LoadResult) String() string {
	kinds := make([]string, 0, len(r.Done))
	for kind, n := range r.Done {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
	}
	sort.Strings(kinds)
	var b strings.Builder
	fmt.Fprintf(&b, "%d failures, slowest %s; went well: %s", len(r.Failures), r.Slowest.Round(time.Millisecond), strings.Join(kinds, ", "))
	for i, f := range r.Failures {
		if i == 20 {
			fmt.Fprintf(&b, "\n  and %d more", len(r.Failures)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s", f)
	}
	return b.String()
}
