package watcher_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// expired answers 410 to requests for EndpointSlices, as an API server does
// that has forgotten the version from which a client wants to go on.
type expired struct {
	next http.RoundTripper
	left *atomic.Int32 // how often
}

func (e expired) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/endpointslices") || e.left.Add(-1) < 0 {
		return e.next.RoundTrip(r)
	}
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`
	return &http.Response{
		StatusCode: http.StatusGone, Status: "410 Gone", Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

func (e expired) WrappedRoundTripper() http.RoundTripper { return e.next }
