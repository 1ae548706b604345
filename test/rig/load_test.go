package rig

import (
	"testing"
	"time"
)

func testLoad(t *testing.T, address string, b *Backend) {
	options := LoadOptions{
		HTTP: address, URL: "http://a/",
		NewConnections: 50, KeepAlive: 2, HTTP2: 1, WebSockets: 1, Events: 1,
	}
	good := StartLoad(t, options)
	enough := func(r *Load, kinds ...string) func() error {
		return func() error { return r.seen(kinds...) }
	}
	Eventually(t, 10*time.Second, enough(good, "new", "keep", "h2", "websocket", "sse"), "load of every kind")
	if r := good.MustBeClean(t); r.Pods[b.Pod] == 0 {
		t.Errorf("pods = %v", r.Pods)
	}

	bad := StartLoad(t, options)
	Eventually(t, 10*time.Second, enough(bad, "new", "keep", "h2", "websocket", "sse"), "load of every kind")
	b.Stop()
	failed := func() error { return bad.failed("new", "keep", "h2", "websocket", "sse") }
	Eventually(t, 10*time.Second, failed, "failures of every kind")
	b.Start(t)
	bad.Stop()
}
