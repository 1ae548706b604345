package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	bodysizev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/body_size_limit/v3"
	chainv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/filter_chain/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// PreFilter is the placeholder that stands first in the HTTP filter chain. A
// route switches filters on in it; alone it does nothing.
const PreFilter = "fairway.pre"

const routerFilter = "envoy.filters.http.router"

// maxBodyBytes is proxy-body-size of ingress-nginx; larger bodies get 413.
const maxBodyBytes = 1 << 20

// httpFilters is the constant chain of every HTTP connection manager: a change
// of routes never changes a listener, so it never drains a connection.
func httpFilters() []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{
		{Name: PreFilter, Disabled: true, ConfigType: config(&chainv3.FilterChainConfig{})},
		router(),
	}
}

// upgradeFilters is the chain of WebSocket connections: the same without the
// body limit, which would close a tunnel after that many bytes.
func upgradeFilters() []*hcmv3.HttpFilter { return []*hcmv3.HttpFilter{router()} }

func router() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: routerFilter, ConfigType: config(&routerv3.Router{SuppressEnvoyHeaders: true})}
}

func config(m proto.Message) *hcmv3.HttpFilter_TypedConfig {
	return &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(m)}
}

// defaultFilters switches on what every route of a RouteConfiguration has
// unless it says otherwise: the limit of request bodies.
func defaultFilters() map[string]*anypb.Any {
	limit := &bodysizev3.BodySizeLimit{MaxRequestBytes: wrapperspb.UInt64(maxBodyBytes)}
	return map[string]*anypb.Any{PreFilter: mustAny(&chainv3.FilterChainConfigPerRoute{
		FilterChain: &chainv3.FilterChain{Filters: []*corev3.TypedExtensionConfig{typed("body", limit)}},
	})}
}
