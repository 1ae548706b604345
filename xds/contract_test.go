package xds

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

// The session and the stream rest on how the library's stream servers behave,
// beyond what they document. These tests pin that down: a new version of the
// library that behaves otherwise shows here first.

// fakeStream is a stream without gRPC. Requests go in, responses come out.
type fakeStream[Req, Resp any] struct {
	grpc.ServerStream
	ctx  context.Context
	in   chan *Req
	out  chan *Resp
	gate chan struct{} // not nil: every Send waits for it
}

func newFakeStream[Req, Resp any](ctx context.Context) *fakeStream[Req, Resp] {
	return &fakeStream[Req, Resp]{ctx: ctx, in: make(chan *Req), out: make(chan *Resp, 100)}
}

func (f *fakeStream[Req, Resp]) Context() context.Context { return f.ctx }

func (f *fakeStream[Req, Resp]) Send(m *Resp) error {
	if f.gate != nil {
		<-f.gate
	}
	f.out <- m
	return nil
}

func (f *fakeStream[Req, Resp]) Recv() (*Req, error) {
	select {
	case m, ok := <-f.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
}

type deltaWatch struct {
	req *cache.DeltaRequest
	sub cache.Subscription
	ch  chan cache.DeltaResponse
}

type sotwWatch struct {
	req *cache.Request
	sub cache.Subscription
	ch  chan cache.Response
}

// watcher is a cache.ConfigWatcher whose watches the test answers itself.
type watcher struct {
	delta    chan deltaWatch
	sotw     chan sotwWatch
	onCancel func() // called for every watch that the library cancels
	cancels  chan struct{}
}

func newWatcher() *watcher {
	return &watcher{delta: make(chan deltaWatch, 2000), sotw: make(chan sotwWatch, 2000), cancels: make(chan struct{}, 2000)}
}

func (w *watcher) cancel() {
	if w.onCancel != nil {
		w.onCancel()
	}
	w.cancels <- struct{}{}
}

func (w *watcher) CreateDeltaWatch(r *cache.DeltaRequest, s cache.Subscription, ch chan cache.DeltaResponse) (func(), error) {
	w.delta <- deltaWatch{r, s, ch}
	return w.cancel, nil
}

func (w *watcher) CreateWatch(r *cache.Request, s cache.Subscription, ch chan cache.Response) (func(), error) {
	w.sotw <- sotwWatch{r, s, ch}
	return w.cancel, nil
}

type (
	deltaFake = fakeStream[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	sotwFake  = fakeStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
)

// runDelta starts the library's delta server; end stops it and returns what the
// handler did.
func runDelta(t *testing.T, w *watcher, callbacks delta.Callbacks) (str *deltaFake, end func() any) {
	ctx, cancel := context.WithCancel(context.Background())
	str = newFakeStream[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse](ctx)
	return str, running(t, cancel, func() error {
		return delta.NewServer(context.Background(), w, callbacks).DeltaStreamHandler(str, "")
	}, func() { close(str.in) })
}

func runSotw(t *testing.T, w *watcher, callbacks sotw.Callbacks, opts ...config.XDSOption) (str *sotwFake, end func() any) {
	ctx, cancel := context.WithCancel(context.Background())
	str = newFakeStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse](ctx)
	return str, running(t, cancel, func() error {
		return sotw.NewServer(context.Background(), w, callbacks, opts...).StreamHandler(str, "")
	}, func() { close(str.in) })
}

// running runs a handler; the returned function ends its requests and returns
// its error or panic.
func running(t *testing.T, cancel func(), handle func() error, eof func()) func() any {
	result := make(chan any, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				result <- p
			}
		}()
		result <- handle()
	}()
	var once sync.Once
	t.Cleanup(func() { once.Do(eof); cancel() })
	return func() any {
		once.Do(eof)
		defer cancel()
		return <-result
	}
}

func deltaRequest(typ envoy.Type) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ.URL()}
}

func sotwRequest(typ envoy.Type) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{TypeUrl: typ.URL()}
}

// rawDelta is a response whose message and version map the test chooses.
type rawDelta struct {
	cache.DeltaResponse
	req *cache.DeltaRequest
	m   *discoveryv3.DeltaDiscoveryResponse
	ret map[string]string
}

func (r *rawDelta) GetDeltaRequest() *discoveryv3.DeltaDiscoveryRequest { return r.req }
func (r *rawDelta) GetDeltaDiscoveryResponse() (*discoveryv3.DeltaDiscoveryResponse, error) {
	return r.m, nil
}
func (r *rawDelta) GetNextVersionMap() map[string]string    { return r.ret }
func (r *rawDelta) GetReturnedResources() map[string]string { return r.ret }

func deltaAnswer(req *cache.DeltaRequest) *rawDelta {
	return &rawDelta{req: req, m: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl()}, ret: map[string]string{}}
}

type rawSotw struct {
	cache.Response
	req *cache.Request
	m   *discoveryv3.DiscoveryResponse
}

func (r *rawSotw) GetRequest() *discoveryv3.DiscoveryRequest                     { return r.req }
func (r *rawSotw) GetDiscoveryResponse() (*discoveryv3.DiscoveryResponse, error) { return r.m, nil }
func (r *rawSotw) GetReturnedResources() map[string]string                       { return map[string]string{} }
func (r *rawSotw) GetContext() context.Context                                   { return context.Background() }

func sotwAnswer(req *cache.Request) *rawSotw {
	return &rawSotw{req: req, m: &discoveryv3.DiscoveryResponse{TypeUrl: req.GetTypeUrl()}}
}

func TestSE21Row01and02and11ManyAnswersToOneDeltaWatch(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil) // row 17: nil callbacks
	str.in <- deltaRequest(envoy.Cluster)
	watch := <-w.delta
	if cap(watch.ch) != 20 {
		t.Errorf("row 2: the channel holds %d", cap(watch.ch))
	}
	for n := range 5 {
		answer := deltaAnswer(watch.req)
		watch.ch <- answer
		if m := <-str.out; m != answer.m || m.GetNonce() != fmt.Sprint(n+1) {
			t.Errorf("row 11: answer %d left as %v", n, m)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestSE21Row03DeltaChannelIsClosed(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	str.in <- deltaRequest(envoy.Cluster)
	watch := <-w.delta
	end()
	<-w.cancels // the watch is cancelled first
	if _, open := <-watch.ch; open {
		t.Error("the channel is open")
	}
}

func TestSE21Row04SotwChannels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		opts []config.XDSOption
		want int
	}{{nil, 1}, {[]config.XDSOption{sotw.WithOrderedADS()}, 10}} {
		w := newWatcher()
		str, end := runSotw(t, w, nil, test.opts...)
		str.in <- sotwRequest(envoy.Cluster)
		watch := <-w.sotw
		end()
		if cap(watch.ch) != test.want {
			t.Errorf("holds %d, want %d", cap(watch.ch), test.want)
		}
		watch.ch <- sotwAnswer(watch.req) // not closed
	}
}

func TestSE21Row05TypeThatWasNotAskedFor(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	str.in <- deltaRequest(envoy.Cluster)
	watch := <-w.delta
	watch.ch <- deltaAnswer(deltaRequest(envoy.Route))
	<-str.out
	req := deltaRequest(envoy.Route)
	req.ResourceNamesSubscribe = []string{"r"}
	str.in <- req
	if p := fmt.Sprint(end()); !strings.Contains(p, "nil map") {
		t.Errorf("delta: %s", p)
	}

	w = newWatcher()
	sstr, end := runSotw(t, w, nil, sotw.WithOrderedADS())
	sstr.in <- sotwRequest(envoy.Cluster)
	swatch := <-w.sotw
	swatch.ch <- sotwAnswer(sotwRequest(envoy.Route))
	<-w.cancels
	if err := fmt.Sprint(end()); !strings.Contains(err, "no current watch for") {
		t.Errorf("sotw: %s", err)
	}
}

func TestSE21Row06NilVersionMap(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	req := deltaRequest(envoy.Cluster)
	req.ResourceNamesSubscribe = []string{"*", "a"}
	str.in <- req
	watch := <-w.delta
	answer := deltaAnswer(watch.req)
	answer.ret = nil
	watch.ch <- answer
	<-str.out
	req = deltaRequest(envoy.Cluster)
	req.ResourceNamesUnsubscribe = []string{"a"}
	str.in <- req
	if p := fmt.Sprint(end()); !strings.Contains(p, "nil map") {
		t.Errorf("got %s", p)
	}
}

func TestSE21Row07DeltaAnswerAcrossARequest(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	str.in <- deltaRequest(envoy.Cluster)
	watch := <-w.delta
	put := sync.OnceFunc(func() { watch.ch <- deltaAnswer(watch.req) })
	w.onCancel = put // after the channel was drained
	str.in <- deltaRequest(envoy.Cluster)
	<-w.delta
	<-str.out // it still leaves
	end()
}

func TestSE21Row08SotwDropsWhatIsQueued(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]config.XDSOption{nil, {sotw.WithOrderedADS()}} {
		w := newWatcher()
		str, end := runSotw(t, w, nil, opts...)
		str.in <- sotwRequest(envoy.Cluster)
		watch := <-w.sotw
		w.onCancel = sync.OnceFunc(func() { watch.ch <- sotwAnswer(watch.req) })
		str.in <- sotwRequest(envoy.Cluster)
		<-w.sotw
		end()
		if len(str.out) != 0 {
			t.Errorf("%v was sent", <-str.out)
		}
	}
}

func TestSE21Row09BlockedSend(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	str.gate = make(chan struct{})
	str.in <- deltaRequest(envoy.Cluster)
	watch := <-w.delta
	watch.ch <- deltaAnswer(watch.req)
	str.in <- deltaRequest(envoy.Route) // is read and no more
	select {
	case <-w.delta:
		t.Error("a request was handled while Send blocks")
	default:
	}
	close(str.gate)
	<-w.delta
	end()
}

func TestSE21Row10Nonces(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	str.in <- deltaRequest(envoy.Cluster)
	watch := <-w.delta
	watch.ch <- deltaAnswer(watch.req)
	<-str.out
	req := deltaRequest(envoy.Cluster)
	req.ResponseNonce = "made-up"
	str.in <- req
	<-w.delta // delta does not compare
	end()

	w = newWatcher()
	sstr, end := runSotw(t, w, nil, sotw.WithOrderedADS())
	sstr.in <- sotwRequest(envoy.Cluster)
	swatch := <-w.sotw
	swatch.ch <- sotwAnswer(swatch.req)
	nonce := (<-sstr.out).GetNonce()
	for _, n := range []string{"made-up", nonce, "anything"} {
		req := sotwRequest(envoy.Cluster)
		req.ResponseNonce = n
		sstr.in <- req
	}
	end()
	var accepted []string
	for len(w.sotw) > 0 {
		accepted = append(accepted, (<-w.sotw).req.GetResponseNonce())
	}
	if !slices.Equal(accepted, []string{nonce, "anything"}) {
		t.Errorf("accepted %v", accepted)
	}
}

func TestSE21Row14and15Subscription(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	req := deltaRequest(envoy.Cluster)
	req.ResourceNamesSubscribe = []string{"a"}
	req.InitialResourceVersions = map[string]string{"a": "1"}
	str.in <- req
	first := <-w.delta
	req = deltaRequest(envoy.Cluster)
	req.ResourceNamesSubscribe = []string{"b"}
	str.in <- req
	second := <-w.delta
	if len(first.sub.SubscribedResources()) != 2 {
		t.Error("row 14: the subscription of the first request is a copy")
	}
	if second.sub.ReturnedResources()["a"] != "1" {
		t.Error("row 15: initial versions are forgotten before a response")
	}
	second.ch <- deltaAnswer(second.req)
	<-str.out
	str.in <- deltaRequest(envoy.Cluster)
	if third := <-w.delta; len(third.sub.ReturnedResources()) != 0 {
		t.Error("row 15: initial versions are kept after a response")
	}
	end()
}

// recorder notes what callbacks see.
type recorder struct {
	ids   chan int64
	nodes chan string
}

func (r recorder) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }
func (r recorder) OnDeltaStreamClosed(int64, *corev3.Node)                {}
func (r recorder) OnStreamDeltaResponse(int64, *discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse) {
}
func (r recorder) OnStreamOpen(context.Context, int64, string) error { return nil }
func (r recorder) OnStreamClosed(int64, *corev3.Node)                {}
func (r recorder) OnStreamResponse(context.Context, int64, *discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse) {
}
func (r recorder) OnStreamDeltaRequest(id int64, req *discoveryv3.DeltaDiscoveryRequest) error {
	r.ids <- id
	r.nodes <- req.GetNode().GetId()
	return nil
}
func (r recorder) OnStreamRequest(id int64, req *discoveryv3.DiscoveryRequest) error {
	r.ids <- id
	r.nodes <- req.GetNode().GetId()
	return nil
}

func TestSE21Row17and18Callbacks(t *testing.T) {
	t.Parallel()
	node := &corev3.Node{Id: "n"}
	for range 2 {
		rec := recorder{make(chan int64, 10), make(chan string, 10)}
		w := newWatcher()
		str, end := runDelta(t, w, rec)
		str.in <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.Cluster.URL(), Node: node}
		str.in <- deltaRequest(envoy.Route)
		end()
		if a, b := <-rec.nodes, <-rec.nodes; a != "n" || b != "" {
			t.Errorf("delta: nodes %q, %q", a, b)
		}
		if id := <-rec.ids; id != 1 {
			t.Errorf("stream %d", id)
		}
		rec = recorder{make(chan int64, 10), make(chan string, 10)}
		w = newWatcher()
		sstr, end := runSotw(t, w, rec, sotw.WithOrderedADS())
		sstr.in <- &discoveryv3.DiscoveryRequest{TypeUrl: envoy.Cluster.URL(), Node: node}
		sstr.in <- sotwRequest(envoy.Route)
		end()
		if a, b := <-rec.nodes, <-rec.nodes; a != "n" || b != "n" {
			t.Errorf("sotw: nodes %q, %q", a, b)
		}
	}
}

func TestSE21Row19EveryTypeURLHasAWatch(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	str, end := runDelta(t, w, nil)
	for n := range 1000 {
		str.in <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: fmt.Sprint("type/", n)}
	}
	end()
	if len(w.delta) != 1000 {
		t.Errorf("%d watches", len(w.delta))
	}
}

func TestSE21Row20OrderOfReadyTypes(t *testing.T) {
	t.Parallel()
	swapped := func(opts ...config.XDSOption) (n int) {
		for range 100 {
			w := newWatcher()
			str, end := runSotw(t, w, nil, opts...)
			str.gate = make(chan struct{})
			str.in <- sotwRequest(envoy.Listener)
			str.in <- sotwRequest(envoy.Cluster)
			str.in <- sotwRequest(envoy.Endpoint)
			busy, c, e := <-w.sotw, <-w.sotw, <-w.sotw
			busy.ch <- sotwAnswer(busy.req)
			eventually(t, "the loop is busy", func() bool { return len(busy.ch) == 0 })
			c.ch <- sotwAnswer(c.req)
			e.ch <- sotwAnswer(e.req)
			close(str.gate)
			<-str.out
			if (<-str.out).GetTypeUrl() == envoy.Endpoint.URL() {
				n++
			}
			<-str.out
			end()
		}
		return n
	}
	if n := swapped(); n == 0 {
		t.Error("the plain loop keeps the order")
	}
	if n := swapped(sotw.WithOrderedADS()); n != 0 {
		t.Errorf("the ordered loop swaps: %d", n)
	}
}

func TestSE21Row21HalfCloseLosesAnswers(t *testing.T) {
	t.Parallel()
	lost := 0
	for range 200 {
		w := newWatcher()
		str, end := runDelta(t, w, nil)
		str.gate = make(chan struct{})
		str.in <- deltaRequest(envoy.Cluster)
		watch := <-w.delta
		watch.ch <- deltaAnswer(watch.req) // the loop is busy with this one
		eventually(t, "the loop is busy", func() bool { return len(watch.ch) == 0 })
		watch.ch <- deltaAnswer(watch.req)
		go close(str.gate)
		end()
		if len(str.out) < 2 {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no answer was lost in 200 calls")
	}
}
