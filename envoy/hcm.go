package envoy

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	serverName        = "fairway"
	maxHeaderKiB      = 96  // Envoy's default of 60 refuses large cookies and Kerberos tickets
	maxHeaders        = 200 // Envoy's default is 100
	headersTimeout    = 60 * time.Second
	streamIdleTimeout = 60 * time.Second // proxy-read-timeout and client-body-timeout of ingress-nginx
	idleTimeout       = time.Hour        // above the idle timeout of every load balancer in front

	maxConcurrentStreams = 128 // http2-max-concurrent-streams of ingress-nginx
	streamWindow         = 64 << 10
	connectionWindow     = 1 << 20

	// http10Host is the host of HTTP/1.0 requests without one. It is a name
	// that no Ingress can have, so such requests reach the catch-all host.
	http10Host = "_"
)

// connectionManager builds the HTTP connection manager of a listener whose
// routes come in the RouteConfiguration of the given name. Where Envoy's advice
// for edge proxies and ingress-nginx's defaults differ, what users can notice
// follows ingress-nginx.
func connectionManager(routes string) *listenerv3.Filter {
	return &listenerv3.Filter{
		Name: "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(&hcmv3.HttpConnectionManager{
			StatPrefix: routes,
			CodecType:  hcmv3.HttpConnectionManager_AUTO,
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
				ConfigSource: adsSource(), RouteConfigName: routes,
			}},
			HttpFilters:    httpFilters(),
			UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket", Filters: upgradeFilters()}},
			AccessLog:      []*accesslogv3.AccessLog{accessLog()},

			// The address of the peer is the client's; nothing that a client
			// writes into X-Forwarded-For changes that.
			UseRemoteAddress:              wrapperspb.Bool(true),
			PreserveExternalRequestId:     true,
			EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{cleanClientHeaders()},

			NormalizePath:                wrapperspb.Bool(true),
			MergeSlashes:                 true,
			PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
			StripTrailingHostDot:         true,

			ServerName:                 serverName,
			ServerHeaderTransformation: hcmv3.HttpConnectionManager_OVERWRITE,
			LocalReplyConfig:           localReplies(),

			MaxRequestHeadersKb:       wrapperspb.UInt32(maxHeaderKiB),
			RequestHeadersTimeout:     durationpb.New(headersTimeout),
			StreamIdleTimeout:         durationpb.New(streamIdleTimeout),
			CommonHttpProtocolOptions: commonOptions(),
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{
				AcceptHttp_10: true, DefaultHostForHttp_10: http10Host,
			},
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
				MaxConcurrentStreams:        wrapperspb.UInt32(maxConcurrentStreams),
				InitialStreamWindowSize:     wrapperspb.UInt32(streamWindow),
				InitialConnectionWindowSize: wrapperspb.UInt32(connectionWindow),
			},
		})},
	}
}

func commonOptions() *corev3.HttpProtocolOptions {
	return &corev3.HttpProtocolOptions{
		IdleTimeout:     durationpb.New(idleTimeout),
		MaxHeadersCount: wrapperspb.UInt32(maxHeaders),
		// nginx drops headers with underscores; refusing the request instead
		// would break clients that send them.
		HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_DROP_HEADER,
	}
}

// cleanClientHeaders moves what the client claimed about its origin to
// X-Original-Forwarded-*, before the routes overwrite those headers with what
// is known, and drops all headers that are Envoy's own: of these Envoy itself
// drops only those that it acts upon.
func cleanClientHeaders() *corev3.TypedExtensionConfig {
	mutations := []*mutationv3.HeaderMutation{removeHeaders("x-envoy-")}
	for _, h := range []string{"for", "host"} {
		claimed, original := "x-forwarded-"+h, "x-original-forwarded-"+h
		mutations = append(mutations, removeHeader(original), copyHeader(claimed, original))
	}
	return typed("envoy.http.early_header_mutation.header_mutation", &earlyv3.HeaderMutation{Mutations: mutations})
}

// localReplies answers 502 where Envoy says 503 because a connection to an
// endpoint failed or broke: 503 means that there was no endpoint at all.
func localReplies() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"UF", "UC"}},
		}},
		StatusCode: wrapperspb.UInt32(502),
	}}}
}

func removeHeader(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

func removeHeaders(prefix string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{
		KeyMatcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}},
	}}}
}

func copyHeader(from, to string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: setHeader(to, "%REQ("+from+")%")}}
}

// setHeader replaces a header by a formatted value; an empty value leaves it out.
func setHeader(name, format string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: format},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
