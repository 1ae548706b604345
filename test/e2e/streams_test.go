package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"fairway/test/rig"
)

// What takes long takes long at the same time: streams that outlive Envoy's
// default limit of 15 s (A07), a websocket that is silent and then used, and an
// answer that does not come within the 60 s of proxy-read-timeout.
func TestLongLived(t *testing.T) {
	t.Parallel()
	pod := rig.StartBackend(t, rig.BackendOptions{Service: "web", Handler: drip})
	siteOf(t, "long", "long.test", "", pod)
	client(t).Expect(t, wait, "http://long.test/", 200, "web")
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	var running sync.WaitGroup
	for name, check := range map[string]func(context.Context, *rig.Client) error{
		"slow download over HTTP/1.1": download("http", false),
		"slow download over h2":       download("https", true),
		"slow upload":                 upload,
		"silent websocket":            silence("http"),
		"silent websocket over TLS":   silence("https"),
		"no answer":                   noAnswer,
	} {
		c := lab.fairway.Client(t, lab.envoy, rig.ClientOptions{Timeout: 90 * time.Second, HTTP2: name == "slow download over h2"})
		running.Go(func() {
			if err := check(ctx, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	running.Wait()
}

const drips = 20

// drip writes a byte, flushes, and rests for a second, again and again.
func drip(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/drip":
		for i := range drips {
			if i > 0 {
				pause(r.Context(), time.Second)
			}
			_, _ = w.Write([]byte{byte('a' + i)})
			_ = http.NewResponseController(w).Flush()
		}
	case "/never":
		<-r.Context().Done()
		w.WriteHeader(http.StatusOK)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// download reads byte by byte and checks that each came when it was sent.
func download(scheme string, h2 bool) func(context.Context, *rig.Client) error {
	return func(ctx context.Context, c *rig.Client) error {
		start := time.Now()
		response, err := c.Open(ctx, http.MethodGet, scheme+"://long.test/drip", nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if h2 != (response.ProtoMajor == 2) {
			return fmt.Errorf("protocol %s", response.Proto)
		}
		for i := range drips {
			b := make([]byte, 1)
			if _, err := io.ReadFull(response.Body, b); err != nil {
				return fmt.Errorf("byte %d: %w", i, err)
			}
			if late := time.Since(start) - time.Duration(i)*time.Second; b[0] != byte('a'+i) || late > 3*time.Second {
				return fmt.Errorf("byte %d is %q and came %v late", i, b, late)
			}
		}
		if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
			return fmt.Errorf("after the last byte: %q, %w", rest, err)
		}
		return nil
	}
}

// upload sends a body at a byte per second.
func upload(ctx context.Context, c *rig.Client) error {
	reader, writer := io.Pipe()
	go func() {
		for range drips {
			if _, err := writer.Write([]byte("x")); err != nil {
				return
			}
			pause(ctx, time.Second)
		}
		_ = writer.Close() // never fails
	}()
	reply, err := c.Do(ctx, http.MethodPost, "http://long.test/", reader)
	if err != nil {
		return err
	}
	if err := reply.Check(200, "web"); err != nil {
		return err
	}
	if reply.Echo.BodyBytes != drips {
		return fmt.Errorf("%d bytes arrived", reply.Echo.BodyBytes)
	}
	return nil
}

// silence keeps a websocket unused for longer than 15 s.
func silence(scheme string) func(context.Context, *rig.Client) error {
	return func(ctx context.Context, c *rig.Client) error {
		conn, _, err := c.WebSocket(ctx, scheme+"://long.test/", nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		pause(ctx, drips*time.Second)
		if err := conn.WriteMessage(websocket.TextMessage, []byte("still there")); err != nil {
			return err
		}
		_, got, err := conn.ReadMessage()
		if err == nil && !bytes.Equal(got, []byte("still there")) {
			err = fmt.Errorf("the answer is %q", got)
		}
		return err
	}
}

// noAnswer waits for an answer that the backend does not give.
func noAnswer(ctx context.Context, c *rig.Client) error {
	start := time.Now()
	reply, err := c.Do(ctx, http.MethodGet, "http://long.test/never", nil)
	if err != nil {
		return err
	}
	if took := time.Since(start); took < 59*time.Second {
		return fmt.Errorf("it took only %v", took)
	}
	return reply.Check(504, "")
}
