package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"fairway/test/rig"
)

// logged waits for the line of the request with a path.
func (s *side) logged(t *testing.T, path string) map[string]any {
	t.Helper()
	var line map[string]any
	rig.Eventually(t, wait, func() error {
		for _, text := range strings.Split(s.envoy.Log(), "\n") {
			if strings.HasPrefix(text, "{") && strings.Contains(text, path) {
				line = nil
				return json.Unmarshal([]byte(text), &line)
			}
		}
		return fmt.Errorf("no line holds it")
	}, "the access log has "+path)
	return line
}

// Whatever a client writes, a request is one line of JSON, and its text is in
// its own field. What the client claims decides nothing of it.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := startSide(t, "log")
	webService(t, "logged")
	s.apply(t, ingress("logged", "web", "logged.test/ web:80"))
	s.client(t).Expect(t, wait, "http://logged.test/", 200, "web")
	endpoint := s.envoy.Clusters(t)["logged/web/80"][0]
	for name, c := range map[string]struct {
		agent  string
		status int
	}{
		"quotes":    {`"}, {"status": "200`, 200},
		"backslash": {`\" \\ \u0022 \`, 200},
		"tab":       {"a\tb", 200},
		"umlaut":    {"Gr\u00fc\u00dfe \u2028", 200},
		"large":     {strings.Repeat("A", 60<<10), 200},
		"format":    {"%REQ(authorization)% %ENVIRONMENT(HOME)%", 200},
		"latin-1":   {"Gr\xfc\xdfe", 200},
		"empty":     {"", 200},
		"escape":    {"\x1b[31mred\x1b[0m", 400},
	} {
		path := "/log-" + name
		reply := rawTo(t, s.http(), "GET "+path+" HTTP/1.1\r\nHost: logged.test\r\nUser-Agent: "+c.agent+"\r\nX-Request-ID: id-"+name+
			"\r\nAuthorization: secret\r\nX-Envoy-Original-Path: /false\r\nX-Forwarded-For: 10.1.1.1\r\n\r\n")
		if err := reply.Check(c.status, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.status != 200 {
			continue
		}
		want := map[string]any{
			"path": path, "host": "logged.test", "method": "GET", "status": float64(200), "protocol": "HTTP/1.1", "client": "127.0.0.1",
			"ingress": "logged/web", "cluster": "logged/web/80", "endpoint": endpoint, "request_id": "id-" + name,
		}
		if name != "latin-1" && name != "empty" {
			want["user_agent"] = c.agent
		}
		got := s.logged(t, path)
		for field, value := range want {
			if got[field] != value {
				t.Errorf("%s: %s is %.80v, want %.80v", name, field, got[field], value)
			}
		}
	}
	for _, text := range strings.Split(s.envoy.Log(), "\n") {
		if strings.HasPrefix(text, "{") && (!json.Valid([]byte(text)) || !utf8.ValidString(text)) {
			t.Errorf("not JSON: %.200q", text)
		}
	}
}
