package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func (s *stage) tour(ctx context.Context) error {
	client := s.client()
	defer client.CloseIdleConnections()
	fmt.Printf("The objects are plain manifests in %s. Envoy is process %d.\n\n", s.objects, s.envoy.Process.Pid)

	if err := s.show(ctx, client, "http://hello.test/greeting", http.StatusOK, "the first backend"); err != nil {
		return err
	}
	if err := s.show(ctx, client, "http://secure.test/greeting", http.StatusPermanentRedirect, ""); err != nil {
		return err
	}
	if err := s.show(ctx, client, "https://secure.test/greeting", http.StatusOK, "the first backend"); err != nil {
		return err
	}
	if err := s.moveEndpoint(ctx, client); err != nil {
		return err
	}
	s.hints()
	return nil
}

// client sends everything to Envoy on this machine, whatever the host.
func (s *stage) client() *http.Client {
	var dialer net.Dialer
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				port := s.ports.http
				if strings.HasSuffix(addr, ":443") {
					port = s.ports.https
				}
				return dialer.DialContext(ctx, network, address(port))
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func get(ctx context.Context, c *http.Client, url string) (*http.Response, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// show makes a request, prints it and its answer, and checks the answer.
func (s *stage) show(ctx context.Context, c *http.Client, url string, status int, text string) error {
	resp, body, err := get(ctx, c, url)
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	fmt.Printf("> GET %s\n< %s\n", url, resp.Status)
	if l := resp.Header.Get("Location"); l != "" {
		fmt.Printf("< location: %s\n", l)
	}
	if resp.TLS != nil {
		fmt.Printf("< certificate of %s\n", strings.Join(resp.TLS.PeerCertificates[0].DNSNames, ", "))
	}
	fmt.Printf("%s\n", body)
	if resp.StatusCode != status || !strings.HasPrefix(body, text) {
		return fmt.Errorf("GET %s answered %s %q, not %d %q", url, resp.Status, body, status, text)
	}
	return nil
}

// moveEndpoint edits a file and measures how long it takes until Envoy answers
// from the new endpoint, over a connection that stays open.
func (s *stage) moveEndpoint(ctx context.Context, c *http.Client) error {
	file := filepath.Join(s.objects, "endpoints.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	moved := strings.Replace(string(text), fmt.Sprint("port: ", s.ports.first), fmt.Sprint("port: ", s.ports.second), 1)
	fmt.Printf("Now the endpoint in endpoints.yaml moves from port %d to %d.\n", s.ports.first, s.ports.second)
	start := time.Now()
	if err := s.write("endpoints.yaml", moved); err != nil {
		return err
	}
	requests := 0
	for {
		requests++
		resp, body, err := get(ctx, c, "http://hello.test/greeting")
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("a request failed while the endpoint moved: %v %v", resp, err)
		}
		if strings.HasPrefix(body, "the second backend") {
			break
		}
		if time.Since(start) > 10*time.Second {
			return fmt.Errorf("the endpoint did not move in 10 s")
		}
	}
	fmt.Printf("%.1f ms after the file was written, Envoy (still process %d) answered from there; none of %d requests failed.\n\n",
		float64(time.Since(start).Microseconds())/1000, s.envoy.Process.Pid, requests)
	return s.show(ctx, c, "http://hello.test/greeting", http.StatusOK, "the second backend")
}

func (s *stage) hints() {
	fmt.Printf(`Try it yourself:
  curl -H 'Host: hello.test' http://%[1]s/
  curl -k --connect-to ::%[2]s https://secure.test/
  curl http://%[3]s/metrics
  %[5]s -plaintext -d '{"type_url":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"}' %[4]s envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources
`, address(s.ports.http), address(s.ports.https), address(s.ports.admin), address(s.ports.debug), grpcurl())
}

// grpcurl is how to call it: by name, or where make has put it.
func grpcurl() string {
	if _, err := exec.LookPath("grpcurl"); err == nil {
		return "grpcurl"
	}
	return ".cache/bin/grpcurl"
}
