package envoy

import (
	"fmt"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// MatchExact matches one path.
func MatchExact(path string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: path}}
}

// MatchElements matches a path and all below it, element by element: "/foo"
// takes "/foo", "/foo/" and "/foo/x", not "/foobar". The path must not be "/",
// end in "/" or hold "?" or "#": Envoy would refuse the whole table.
func MatchElements(path string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: path}}
}

// MatchPrefix matches every path that starts with the given text.
func MatchPrefix(prefix string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}}
}

// OneLabel restricts a match to hosts with exactly one label in place of the
// "*" of a wildcard host: Envoy's own wildcard takes any number.
func OneLabel(m *routev3.RouteMatch, wildcard string) *routev3.RouteMatch {
	suffix := regexp.QuoteMeta(strings.TrimPrefix(wildcard, "*"))
	m.Headers = append(m.Headers, &routev3.HeaderMatcher{
		Name: ":authority",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
				Regex: `(?i)[^.:]+` + suffix + `(:[0-9]+)?`,
			}},
		}},
	})
	return m
}

// Forward sends requests to a cluster. There is no limit on the whole request;
// the stream's idle timeout ends what has stopped moving.
func Forward(name string, m *routev3.RouteMatch, cluster string) *routev3.Route {
	return &routev3.Route{Name: name, Match: m, Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          durationpb.New(0),
	}}}
}

// Respond answers with a status and no body.
func Respond(name string, m *routev3.RouteMatch, status uint32) *routev3.Route {
	return &routev3.Route{Name: name, Match: m, Action: &routev3.Route_DirectResponse{
		DirectResponse: &routev3.DirectResponseAction{Status: status},
	}}
}

// RedirectHTTPS answers 308 with the same URL under https. host replaces the
// host and drops the port; empty keeps both.
func RedirectHTTPS(name string, m *routev3.RouteMatch, host string) *routev3.Route {
	return &routev3.Route{Name: name, Match: m, Action: &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{
		SchemeRewriteSpecifier: &routev3.RedirectAction_HttpsRedirect{HttpsRedirect: true},
		HostRedirect:           host,
		ResponseCode:           routev3.RedirectAction_PERMANENT_REDIRECT,
	}}}
}

// VirtualHost builds the routes of one host: a name, "*.suffix", or "*" for all
// others. A request is tried again only where no endpoint can have seen it.
func VirtualHost(domain string, routes []*routev3.Route) *routev3.VirtualHost {
	return &routev3.VirtualHost{
		Name: domain, Domains: []string{domain}, Routes: routes,
		RetryPolicy: &routev3.RetryPolicy{
			RetryOn:    "connect-failure,refused-stream,reset-before-request",
			NumRetries: wrapperspb.UInt32(2), // proxy-next-upstream-tries of ingress-nginx counts the first try
			RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
				Name:       "envoy.retry_host_predicates.previous_hosts",
				ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: mustAny(&previousv3.PreviousHostsPredicate{})},
			}},
			HostSelectionRetryMaxAttempts: 3,
		},
	}
}

// EncodeVirtualHost validates and encodes a virtual host, so that one host can
// change without encoding the others again.
func EncodeVirtualHost(v *routev3.VirtualHost) ([]byte, error) {
	if err := v.ValidateAll(); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", v.GetName(), err)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(v)
}

// virtualHostsField is the number of RouteConfiguration.virtual_hosts.
const virtualHostsField = 2

// RouteTable assembles a RouteConfiguration from encoded virtual hosts: the
// encoding of a repeated field is the concatenation of its elements.
func RouteTable(base *routev3.RouteConfiguration, hosts [][]byte) (*Resource, error) {
	head, err := Encode(Route, base.GetName(), base)
	if err != nil {
		return nil, err
	}
	size := len(head.Any.GetValue())
	for _, h := range hosts {
		size += protowire.SizeTag(virtualHostsField) + protowire.SizeBytes(len(h))
	}
	b := append(make([]byte, 0, size), head.Any.GetValue()...)
	for _, h := range hosts {
		b = protowire.AppendTag(b, virtualHostsField, protowire.BytesType)
		b = protowire.AppendBytes(b, h)
	}
	return &Resource{Type: Route, Name: base.GetName(), Version: Version(b), Any: &anypb.Any{TypeUrl: Route.URL(), Value: b}}, nil
}

// RouteBase builds all of a RouteConfiguration but its hosts: what every
// request gets on its way to an endpoint. scheme is "http" or "https" and also
// the table's name; port is the one that clients see.
func RouteBase(scheme, port string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:                     scheme,
		IgnorePortInHostMatching: true, // and forward the host as the client sent it
		RequestHeadersToAdd: []*corev3.HeaderValueOption{
			setHeader("x-real-ip", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
			setHeader("x-forwarded-for", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
			setHeader("x-forwarded-host", "%REQ(:AUTHORITY)%"),
			setHeader("x-forwarded-port", port),
			setHeader("x-forwarded-proto", scheme),
			setHeader("x-forwarded-scheme", scheme),
			setHeader("x-scheme", scheme),
		},
		// Proxy could steer CGI programs. The ssl-client headers are statements
		// of this proxy about client certificates; a client must not make them.
		RequestHeadersToRemove: []string{
			"proxy", "ssl-client-verify", "ssl-client-subject-dn", "ssl-client-issuer-dn", "ssl-client-cert",
			"x-envoy-external-address", "x-envoy-expected-rq-timeout-ms",
		},
		TypedPerFilterConfig: defaultFilters(),
	}
}
