package envoy

import (
	"strconv"
	"strings"
)

// Names of the resources that exist exactly once.
const (
	HTTPName  = "http"  // the plain listener and its RouteConfiguration
	HTTPSName = "https" // the TLS listener and its RouteConfiguration

	DefaultSecretName = "tls/default" // the certificate for server names that have none
)

// ClusterName returns the name of the cluster, and of its load assignment, for
// one port of a Service.
func ClusterName(namespace, service string, port int32) string {
	return namespace + "/" + service + "/" + strconv.Itoa(int(port))
}

// SecretName returns the name of the Secret resource for a Kubernetes Secret.
func SecretName(namespace, name string) string {
	return "tls/" + namespace + "/" + name
}

// statName makes a resource name readable as one element of a statistic's
// name: Envoy splits those at dots.
func statName(name string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(name)
}

// Escape makes user text literal in fields that Envoy reads as a format string.
func Escape(text string) string { return strings.ReplaceAll(text, "%", "%%") }
