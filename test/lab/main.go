// Command lab starts everything that a cluster would have, for work by hand:
// etcd, kube-apiserver, Fairway, Envoy and two echo backends, in a network
// namespace of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fairway/test/rig"
)

const usage = `Starts a Kubernetes API server, Fairway, an Envoy and two echo backends in a
network namespace of its own, then a shell in it, or the given command.

  go run ./test/lab [flags] [-- COMMAND [ARG...]]

Examples:
  go run ./test/lab
  go run ./test/lab -- kubectl get ingress -A
  go run ./test/lab -fairway "--log-level=debug --watch-ingress-without-class"
  go run ./test/lab -- curl -s -H 'Host: echo.example' http://127.0.0.1:8080/

Flags:
`

func main() {
	fairwayFlags := flag.String("fairway", "", "more flags for \"fairway serve\"")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	rig.Enter()
	command := flag.Args()
	if len(command) == 0 {
		command = []string{shell()}
	}
	code := 0
	failed := rig.Run("lab", func(_ context.Context, s *rig.Session) {
		l := start(s, strings.Fields(*fairwayFlags))
		l.describe()
		code = l.run(s, command)
	})
	os.Exit(max(code, failed))
}

// lab is what runs.
type lab struct {
	kube    *rig.Kube
	fairway *rig.Fairway
	envoy   *rig.Envoy
}

// sample is one Ingress, so that there is something to look at.
const sample = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairway}
spec: {controller: fairway.sh/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: echo, namespace: default}
spec:
  ingressClassName: fairway
  rules:
  - host: echo.example
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: echo, port: {number: 80}}}}]
`

// start uses the ports of the documentation: the namespace has them free.
func start(s *rig.Session, flags []string) lab {
	l := lab{kube: rig.StartKube(s, rig.KubeOptions{})}
	backends := rig.StartBackends(s, "echo", 2)
	l.kube.ApplyObjects(s, rig.Service("default", "echo"), rig.SliceOf("default", "echo", backends...))
	l.kube.Apply(s, sample)
	l.fairway = rig.StartFairway(s, append([]string{
		"--kubeconfig=" + l.kube.Kubeconfig,
		"--xds-address=127.0.0.1:18000", "--debug-address=127.0.0.1:18001", "--admin-address=127.0.0.1:10254",
		"--http-port=8080", "--https-port=8443", "--publish-status-address=127.0.0.1",
	}, flags...)...)
	l.envoy = l.fairway.StartEnvoy(s, "lab", rig.EnvoyOptions{}, "--stats-address=127.0.0.1:8002")
	client := l.fairway.Client(s, l.envoy, rig.ClientOptions{})
	client.Expect(s, 10*time.Second, "http://echo.example/", http.StatusOK, "echo")
	return l
}

// describe prints what is where.
func (l lab) describe() {
	fmt.Printf(`
The lab runs. In the shell that follows, or after
  nsenter --target %d --net --user --preserve-credentials   (as root: without --user --preserve-credentials)

  export KUBECONFIG=%s
  kubectl get ingress -A
  curl -H 'Host: echo.example' http://127.0.0.1:8080/
  curl http://127.0.0.1:10254/metrics
  curl http://127.0.0.1:8002/stats/prometheus
  curl --unix-socket %s http://admin/config_dump
  grpcurl -plaintext 127.0.0.1:18001 list
  grpcurl -plaintext -d '{"type_url":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"}' \
    127.0.0.1:18001 envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources

Every address of 10.245.0.0/16 is local: bind it and name it in an EndpointSlice.
It all ends when the shell does.

`, os.Getpid(), l.kube.Kubeconfig, l.envoy.AdminSocket)
}

// run runs the command with the lab's programs on its path.
func (l lab) run(s *rig.Session, command []string) int {
	path := os.Getenv("PATH")
	for _, program := range []string{"kubectl", "grpcurl"} {
		path = filepath.Dir(rig.Program(s, program)) + string(os.PathListSeparator) + path
	}
	// exec.Command looks the command up on our own path.
	if err := os.Setenv("PATH", path); err != nil {
		s.Fatalf("%v", err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.kube.Kubeconfig)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatalf("%s: %v", command[0], err)
	}
	return cmd.ProcessState.ExitCode()
}

func shell() string {
	if given := os.Getenv("SHELL"); given != "" {
		return given
	}
	return "/bin/sh"
}
