package xds

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"

	"fairway/envoy"
)

// StreamStatus is what the store knows about one connected Envoy.
type StreamStatus struct {
	ID, Cluster string // of the node
	Version     string // of Envoy, if it says so
	Protocol    string // delta or sotw
	Connected   time.Time
	Types       []TypeStatus // the types that it asked for
}

// TypeStatus counts resources of one type on one stream.
type TypeStatus struct {
	Type    envoy.Type
	Acked   int // accepted and current
	Pending int // sent, not answered
	Dirty   int // still to be sent
	Refused int // refused in their current form
	Nonce   string
	Nack    string // the last refusal
}

// Streams returns the connected Envoys, sorted by node and time of connection.
func (s *Store) Streams() []StreamStatus {
	var out []StreamStatus
	s.eachStream(func(st *stream) { out = append(out, st.status()) })
	slices.SortFunc(out, func(a, b StreamStatus) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return a.Connected.Compare(b.Connected)
	})
	return out
}

// eachStream calls f for every stream of an Envoy, under the stream's lock.
func (s *Store) eachStream(f func(*stream)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for st := range s.streams {
		if st.session.debug {
			continue
		}
		st.mu.Lock()
		f(st)
		st.mu.Unlock()
	}
}

// status is called under the stream's lock.
func (st *stream) status() StreamStatus {
	out := StreamStatus{
		ID: st.node.GetId(), Cluster: st.node.GetCluster(), Version: nodeVersion(st.node),
		Protocol: protocolName(st.session.delta), Connected: st.opened,
	}
	for t := range st.session.types {
		if st.session.types[t].seen {
			out.Types = append(out.Types, st.session.typeStatus(envoy.Type(t)))
		}
	}
	return out
}

// typeStatus counts the resources of one type by their state.
func (s *session) typeStatus(t envoy.Type) TypeStatus {
	ts := &s.types[t]
	out := TypeStatus{Type: t, Nonce: ts.nonce, Nack: ts.nack}
	s.eachResource(t, func(_ string, _ *item, state resourceState) {
		switch state {
		case synced:
			out.Acked++
		case sent:
			out.Pending++
		case notSent:
			out.Dirty++
		case failed:
			out.Refused++
		}
	})
	return out
}

// resourceState is where a resource stands with a client, in the order of how
// much it asks for attention.
type resourceState int

const (
	synced  resourceState = iota // accepted and current
	sent                         // not answered yet
	notSent                      // changed since it was last sent
	failed                       // refused
)

// eachResource calls f for every resource that the client subscribed to.
func (s *session) eachResource(t envoy.Type, f func(name string, it *item, state resourceState)) {
	ts := &s.types[t]
	var flying bitset
	for _, r := range ts.flights {
		for _, it := range r.fresh {
			flying.set(it.id)
		}
	}
	for _, group := range ts.groups {
		for _, i := range group {
			flying.set(i)
		}
	}
	for i := range s.tables[t].entries {
		e := &s.tables[t].entries[i]
		if !ts.wants(id(i)) || e.item == nil && !ts.held.has(id(i)) {
			continue
		}
		state := synced
		switch {
		case e.item != nil && ts.refuses(e.item):
			state = failed
		case ts.dirty.has(id(i)):
			state = notSent
		case flying.has(id(i)):
			state = sent
		}
		f(e.name, e.item, state)
	}
}

// nodeVersion returns the version of Envoy in either of the forms in which a node
// may state it.
func nodeVersion(n *corev3.Node) string {
	v := n.GetUserAgentBuildVersion().GetVersion()
	if v == nil {
		return n.GetUserAgentVersion()
	}
	return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
}

// clientStatus answers client status discovery requests.
type clientStatus struct{ s *Server }

func (s *Server) registerStatus(r grpc.ServiceRegistrar) {
	statusv3.RegisterClientStatusDiscoveryServiceServer(r, clientStatus{s})
}

func (c clientStatus) FetchClientStatus(_ context.Context, req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	return c.s.store.clientStatus(req), nil
}

// StreamClientStatus answers every request with the state at that moment.
func (c clientStatus) StreamClientStatus(str grpc.BidiStreamingServer[statusv3.ClientStatusRequest, statusv3.ClientStatusResponse]) error {
	for {
		req, err := str.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := str.Send(c.s.store.clientStatus(req)); err != nil {
			return err
		}
	}
}

// clientStatus describes the connected Envoys, or those whose node id the
// request names exactly. Contents of resources are left out.
func (s *Store) clientStatus(req *statusv3.ClientStatusRequest) *statusv3.ClientStatusResponse {
	wanted := map[string]bool{}
	for _, m := range req.GetNodeMatchers() {
		wanted[m.GetNodeId().GetExact()] = true
	}
	out := &statusv3.ClientStatusResponse{}
	s.eachStream(func(st *stream) {
		if len(wanted) == 0 || wanted[st.node.GetId()] {
			out.Config = append(out.Config, st.clientConfig())
		}
	})
	slices.SortFunc(out.Config, func(a, b *statusv3.ClientConfig) int {
		return strings.Compare(a.GetNode().GetId(), b.GetNode().GetId())
	})
	return out
}

// clientConfig has per type one entry without a name, which speaks for the type
// and has the last nonce as its version, and one entry per resource.
func (st *stream) clientConfig() *statusv3.ClientConfig {
	c := &statusv3.ClientConfig{Node: st.node}
	for t := range st.session.types {
		ts := &st.session.types[t]
		if !ts.seen {
			continue
		}
		summary := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: envoy.Type(t).URL(), VersionInfo: ts.nonce}
		c.GenericXdsConfigs = append(c.GenericXdsConfigs, summary)
		worst := synced
		st.session.eachResource(envoy.Type(t), func(name string, it *item, state resourceState) {
			worst = max(worst, state)
			c.GenericXdsConfigs = append(c.GenericXdsConfigs, resourceConfig(envoy.Type(t), name, it, state, ts.nack))
		})
		summary.ConfigStatus, summary.ClientStatus = states[worst].config, states[worst].client
		if ts.nack != "" {
			summary.ErrorState = &adminv3.UpdateFailureState{Details: ts.nack}
		}
	}
	return c
}

func resourceConfig(t envoy.Type, name string, it *item, state resourceState, nack string) *statusv3.ClientConfig_GenericXdsConfig {
	c := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: t.URL(), Name: name, ConfigStatus: states[state].config, ClientStatus: states[state].client,
	}
	if it != nil {
		c.VersionInfo = it.version
	}
	if state == failed {
		c.ErrorState = &adminv3.UpdateFailureState{Details: nack, VersionInfo: c.VersionInfo}
	}
	return c
}

var states = map[resourceState]struct {
	config statusv3.ConfigStatus
	client adminv3.ClientResourceStatus
}{
	synced:  {statusv3.ConfigStatus_SYNCED, adminv3.ClientResourceStatus_ACKED},
	sent:    {statusv3.ConfigStatus_STALE, adminv3.ClientResourceStatus_REQUESTED},
	notSent: {statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_REQUESTED},
	failed:  {statusv3.ConfigStatus_ERROR, adminv3.ClientResourceStatus_NACKED},
}
