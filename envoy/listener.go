package envoy

import (
	"cmp"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// handshakeTimeout is all the time that a client has to finish its handshake.
const handshakeTimeout = connectTimeout * 2

// HTTPListener builds the plain listener.
func HTTPListener(port uint32) *listenerv3.Listener {
	return listener(HTTPName, port, &listenerv3.FilterChain{Name: HTTPName, Filters: []*listenerv3.Filter{connectionManager(HTTPName)}})
}

// HTTPSListener builds the TLS listener: one filter chain per Secret resource
// that a server name needs, and the default chain for all other names and for
// clients without one. names maps server names, exact or "*.suffix", to Secret
// resources.
//
// The names stand in the matcher and not in the chains, so that a new name of a
// known certificate changes no chain: a changed chain drains its connections.
func HTTPSListener(port uint32, names map[string]string) *listenerv3.Listener {
	l := listener(HTTPSName, port, tlsChain(DefaultSecretName))
	l.ListenerFilters = []*listenerv3.ListenerFilter{{
		Name:       "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: mustAny(&inspectorv3.TlsInspector{})},
	}}
	var secrets []string
	for _, s := range names {
		secrets = append(secrets, s)
	}
	slices.Sort(secrets)
	for _, s := range slices.Compact(secrets) {
		l.FilterChains = append(l.FilterChains, tlsChain(s))
	}
	l.FilterChainMatcher = serverNameMatcher(names)
	return l
}

func listener(name string, port uint32, fallback *listenerv3.FilterChain) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:                          name,
		Address:                       socketAddress("0.0.0.0", port),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		DefaultFilterChain:            fallback,
	}
}

func tlsChain(secret string) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name:                          secret,
		Filters:                       []*listenerv3.Filter{connectionManager(HTTPSName)},
		TransportSocket:               downstreamTLS(secret),
		TransportSocketConnectTimeout: durationpb.New(handshakeTimeout),
	}
}

// serverNameMatcher chooses the chain: exact names first, then the longest
// suffix. It is nil when there are no names, since Envoy refuses an empty map.
func serverNameMatcher(names map[string]string) *matcherv3.Matcher {
	exact := map[string]*matcherv3.Matcher_OnMatch{}
	var suffixes []string
	for name, secret := range names {
		if suffix, ok := strings.CutPrefix(name, "*"); ok {
			suffixes = append(suffixes, suffix)
		} else {
			exact[name] = toChain(secret)
		}
	}
	slices.SortFunc(suffixes, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	bySuffix := suffixMatcher(suffixes, names)
	if len(exact) == 0 {
		return bySuffix
	}
	m := &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input:    serverNameInput(),
		TreeType: &matcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{Map: exact}},
	}}}
	if bySuffix != nil {
		m.OnNoMatch = &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Matcher{Matcher: bySuffix}}
	}
	return m
}

func suffixMatcher(suffixes []string, names map[string]string) *matcherv3.Matcher {
	if len(suffixes) == 0 {
		return nil
	}
	list := &matcherv3.Matcher_MatcherList{}
	for _, suffix := range suffixes {
		list.Matchers = append(list.Matchers, &matcherv3.Matcher_MatcherList_FieldMatcher{
			Predicate: &matcherv3.Matcher_MatcherList_Predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
				SinglePredicate: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
					Input: serverNameInput(),
					Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matcherv3.StringMatcher{
						MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix},
					}},
				},
			}},
			OnMatch: toChain(names["*"+suffix]),
		})
	}
	return &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherList_{MatcherList: list}}
}

func serverNameInput() *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{Name: "server_name", TypedConfig: mustAny(&networkv3.ServerNameInput{})}
}

func toChain(name string) *matcherv3.Matcher_OnMatch {
	return &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: mustAny(wrapperspb.String(name))},
	}}
}
