// Package conformance runs the Ingress API's behaviour, written down as data in
// cases.yaml, against a real API server, Fairway and a real Envoy.
package conformance

import (
	"fmt"
	"os"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// A Case is a set of objects in a namespace of their own and requests to send
// while they exist.
type Case struct {
	Name      string
	NoStatus  bool // the Ingress belongs to another class: its status must stay empty
	NoReady   bool // the first request has nothing to wait for
	Secrets   []SecretSpec
	Services  []ServiceSpec // only those that differ from one ready endpoint
	Ingresses []networkingv1.Ingress
	Steps     []Step
}

// SecretSpec is a TLS Secret with a self-signed certificate for the hosts.
type SecretSpec struct {
	Name  string
	Hosts []string
}

// ServiceSpec says how many ready endpoints a Service has.
type ServiceSpec struct {
	Name      string
	Endpoints int
}

// A Step is a request, sent Count times, and what every answer must be like.
type Step struct {
	ID     string
	Count  int
	Req    Request
	Expect Expectation
}

// Request is what to send. STATUS_ADDRESS in the URL stands for the address in
// the Ingress's status.
type Request struct {
	Method string
	URL    string
}

// Expectation holds for an answer if every field that is given holds. The
// values of headers are "*" for any, else a regular expression for all of it.
type Expectation struct {
	Status       []int
	Service      string
	Host         string
	Path         string
	Method       string
	Proto        string
	Headers      map[string]string // of the response
	ReqHeaders   map[string]string // as the backend saw them
	CertHost     string
	DistinctPods int
}

// Load reads the cases.
func Load(file string) ([]Case, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var data struct{ Cases []Case }
	if err := yaml.Unmarshal(raw, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return data.Cases, nil
}
