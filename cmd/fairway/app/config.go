package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"fairway/translator/model"
)

// Config is what `fairway serve` is told by its flags. It does not change while
// the process lives.
type Config struct {
	Kubeconfig, Context string
	Manifests           string

	IngressClass    string
	ControllerClass string
	WithoutClass    bool

	Namespaces        []string
	NamespaceSelector string
	ServiceSelector   string

	DefaultBackend     string // namespace/name of a Service
	DefaultCertificate string // namespace/name of a Secret
	DisableCatchAll    bool
	ExternalName       bool

	HTTPPort, HTTPSPort uint16

	XDSAddress   string
	XDSTLSDir    string
	XDSInsecure  bool
	DebugAddress string
	AdminAddress string

	PublishStatusAddress []string
	UpdateStatus         bool

	LogLevel, LogFormat string
}

// DefaultConfig returns the values of all flags that are not given.
func DefaultConfig() Config {
	return Config{
		IngressClass: "fairway", ControllerClass: "fairway.sh/ingress-controller",
		HTTPPort: 8080, HTTPSPort: 8443,
		XDSAddress: ":18000", DebugAddress: "127.0.0.1:18001", AdminAddress: ":10254",
		UpdateStatus: true, LogLevel: "info", LogFormat: "text",
	}
}

func (c *Config) flags(f *pflag.FlagSet) {
	f.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig file; without it $KUBECONFIG, and then the pod's own service account")
	f.StringVar(&c.Context, "context", c.Context, "context of the kubeconfig")
	f.StringVar(&c.Manifests, "manifests", c.Manifests, "serve the objects of this folder of manifests instead of a cluster's")
	f.StringVar(&c.IngressClass, "ingress-class", c.IngressClass, "value of the kubernetes.io/ingress.class annotation that is ours")
	f.StringVar(&c.ControllerClass, "controller-class", c.ControllerClass, "spec.controller of the IngressClasses that are ours")
	f.BoolVar(&c.WithoutClass, "watch-ingress-without-class", c.WithoutClass, "serve Ingresses that name no class")
	f.StringSliceVar(&c.Namespaces, "watch-namespace", c.Namespaces, "namespaces to watch; all if empty")
	f.StringVar(&c.NamespaceSelector, "watch-namespace-selector", c.NamespaceSelector, "label selector of the namespaces to watch")
	f.StringVar(&c.ServiceSelector, "service-label-selector", c.ServiceSelector, "label selector of the Services and EndpointSlices to watch")
	f.StringVar(&c.DefaultBackend, "default-backend-service", c.DefaultBackend, "NAMESPACE/NAME of the Service for requests that no rule takes; 404 without it")
	f.StringVar(&c.DefaultCertificate, "default-ssl-certificate", c.DefaultCertificate, "NAMESPACE/NAME of the TLS Secret for hosts that have none; self-signed without it")
	f.BoolVar(&c.DisableCatchAll, "disable-catch-all", c.DisableCatchAll, "do not serve Ingresses with a default backend")
	f.BoolVar(&c.ExternalName, "enable-external-name", c.ExternalName, "serve Services of type ExternalName")
	f.Uint16Var(&c.HTTPPort, "http-port", c.HTTPPort, "port on which Envoy takes HTTP")
	f.Uint16Var(&c.HTTPSPort, "https-port", c.HTTPSPort, "port on which Envoy takes HTTPS")
	f.StringVar(&c.XDSAddress, "xds-address", c.XDSAddress, "address for Envoys")
	f.StringVar(&c.XDSTLSDir, "xds-tls-dir", c.XDSTLSDir, "directory with tls.crt, tls.key and ca.crt for the xDS address")
	f.BoolVar(&c.XDSInsecure, "xds-insecure", c.XDSInsecure, "serve Envoys without TLS; only on a loopback address")
	f.StringVar(&c.DebugAddress, "debug-address", c.DebugAddress, "loopback address for grpcurl; empty: none")
	f.StringVar(&c.AdminAddress, "admin-address", c.AdminAddress, "address of /healthz, /readyz and /metrics")
	f.StringSliceVar(&c.PublishStatusAddress, "publish-status-address", c.PublishStatusAddress, "addresses to write into the status of the Ingresses")
	f.BoolVar(&c.UpdateStatus, "update-status", c.UpdateStatus, "write the status of the Ingresses")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json")
}

// Validate reports everything that is wrong at once.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Manifests == "" || c.Kubeconfig == "" && c.Context == "", "--manifests excludes --kubeconfig and --context")
	check(c.HTTPPort != 0 && c.HTTPSPort != 0 && c.HTTPPort != c.HTTPSPort, "--http-port and --https-port must be two different ports from 1 to 65535")
	check((c.XDSTLSDir != "") != c.XDSInsecure, "give either --xds-tls-dir, or --xds-insecure together with a loopback --xds-address")
	check(!c.XDSInsecure || isLoopback(c.XDSAddress), "--xds-insecure needs a loopback --xds-address such as 127.0.0.1:18000, not %q: this stream carries every private key", c.XDSAddress)
	check(c.DebugAddress == "" || isLoopback(c.DebugAddress), "--debug-address %q is not a loopback address", c.DebugAddress)
	_, err := parseRef(model.Service, c.DefaultBackend)
	check(err == nil, "--default-backend-service %v", err)
	_, err = parseRef(model.Secret, c.DefaultCertificate)
	check(err == nil, "--default-ssl-certificate %v", err)
	for _, a := range c.PublishStatusAddress {
		check(a != "" && !strings.ContainsAny(a, " /:") || isAddress(a), "--publish-status-address %q is neither an IP address nor a host name", a)
	}
	check(c.LogFormat == "text" || c.LogFormat == "json", "--log-format %q: want text or json", c.LogFormat)
	check(new(slog.Level).UnmarshalText([]byte(c.LogLevel)) == nil, "--log-level %q: want debug, info, warn or error", c.LogLevel)
	return joinLines(errs)
}

// joinLines makes one line of several errors.
func joinLines(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
	}
	return errors.New(strings.Join(lines, "; "))
}

func isAddress(a string) bool {
	_, err := netip.ParseAddr(a)
	return err == nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// parseRef reads "namespace/name"; empty is the zero Ref.
func parseRef(kind model.Kind, value string) (model.Ref, error) {
	if value == "" {
		return model.Ref{}, nil
	}
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.Ref{}, fmt.Errorf("%q: want NAMESPACE/NAME", value)
	}
	return model.Ref{Kind: kind, Namespace: namespace, Name: name}, nil
}
