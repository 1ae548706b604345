package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"fairway/test/rig"
)

// A request body may have 1 MiB, however it is framed.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	pods := site(t, "body", "body.test", 1)
	for _, h2 := range []bool{false, true} {
		c := lab.fairway.Client(t, lab.envoy, rig.ClientOptions{HTTP2: h2})
		for _, chunked := range []bool{false, true} {
			for size, status := range map[int]int{0: 200, 1: 200, limit - 1: 200, limit: 200, limit + 1: 413, 3 * limit: 413} {
				t.Run(fmt.Sprintf("h2=%v chunked=%v size=%d", h2, chunked, size), func(t *testing.T) {
					before := pods[0].Requests()
					var body io.Reader = bytes.NewReader(make([]byte, size))
					if chunked {
						body = struct{ io.Reader }{body} // hides the size
					}
					reply, err := c.Do(deadline(t), http.MethodPost, "http://body.test/", body)
					if err != nil {
						t.Fatal(err)
					}
					if reply.StatusCode != status {
						t.Errorf("status %d, want %d", reply.StatusCode, status)
					}
					if status == 200 && reply.Echo.BodyBytes != int64(size) {
						t.Errorf("%d bytes arrived", reply.Echo.BodyBytes)
					}
					if !chunked && status == 413 && pods[0].Requests() != before {
						t.Error("the backend saw a request that was refused")
					}
				})
			}
		}
	}
	// The limit is on requests alone.
	if got := client(t).MustGet(t, "http://body.test/bytes?n=5000000"); len(got.Body) != 5000000 {
		t.Errorf("%d bytes of an answer", len(got.Body))
	}
}

// Large cookies and many headers pass (A36), up to a limit that answers 431.
func TestHeaderLimits(t *testing.T) {
	t.Parallel()
	site(t, "large", "large.test", 1)
	many := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("X-Many-%d: v", i)
		}
		return out
	}
	for name, c := range map[string]struct {
		headers []string
		status  int
	}{
		"a cookie of 61 KiB":    {[]string{"Cookie: " + strings.Repeat("c", 61<<10)}, 200},
		"a cookie of 94 KiB":    {[]string{"Cookie: " + strings.Repeat("c", 94<<10)}, 200},
		"a cookie of 97 KiB":    {[]string{"Cookie: " + strings.Repeat("c", 97<<10)}, 431},
		"110 headers":           {many(110), 200},
		"190 headers":           {many(190), 200},
		"201 headers":           {many(201), 431},
		"headers of 97 KiB":     {[]string{"X-A: " + strings.Repeat("a", 49<<10), "X-B: " + strings.Repeat("b", 49<<10)}, 431},
		"a header without text": {[]string{"X-Empty:"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			reply := rawGet(t, "large.test", "/", c.headers...)
			if reply.StatusCode != c.status {
				t.Fatalf("status %d, want %d", reply.StatusCode, c.status)
			}
			if c.status != 200 {
				return
			}
			for _, h := range c.headers {
				header, value, _ := strings.Cut(h, ":")
				if got := reply.Echo.Header(header); got != strings.TrimSpace(value) {
					t.Fatalf("%s arrived with %d bytes", header, len(got))
				}
			}
		})
	}
	long := "/" + strings.Repeat("p", 40<<10)
	if reply := rawGet(t, "large.test", long); reply.StatusCode != 200 || reply.Echo.Path != long {
		t.Errorf("a path of 40 KiB: status %d", reply.StatusCode)
	}
}

// What a backend answers is not cut where a request would be accepted.
func TestLargeResponseHeaders(t *testing.T) {
	t.Parallel()
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "web", Handler: func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/many":
			for i := range 150 {
				w.Header().Add("Set-Cookie", fmt.Sprintf("c%d=v", i))
			}
			w.WriteHeader(http.StatusOK)
		case "/large":
			w.Header().Set("X-Large", strings.Repeat("x", 40<<10))
			w.WriteHeader(http.StatusOK)
		}
	}})
	siteOf(t, "large-answer", "large-answer.test", "", pod)
	client(t).Expect(t, wait, "http://large-answer.test/", 200, "web")
	if got := client(t).MustGet(t, "http://large-answer.test/many"); got.StatusCode != 200 || len(got.Header["Set-Cookie"]) != 150 {
		t.Errorf("status %d with %d cookies", got.StatusCode, len(got.Header["Set-Cookie"]))
	}
	if got := client(t).MustGet(t, "http://large-answer.test/large"); got.StatusCode != 200 || len(got.Header.Get("X-Large")) != 40<<10 {
		t.Errorf("status %d with %d bytes", got.StatusCode, len(got.Header.Get("X-Large")))
	}
}
