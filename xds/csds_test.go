package xds

import (
	"strings"
	"testing"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"fairway/envoy"
)

// statuses are the states of one type's resources on the only stream; the one
// without a name speaks for the type.
func statuses(m *statusv3.ClientStatusResponse, typ envoy.Type) map[string]string {
	out := map[string]string{}
	for _, c := range m.GetConfig()[0].GetGenericXdsConfigs() {
		if c.GetTypeUrl() == typ.URL() {
			out[c.GetName()] = c.GetConfigStatus().String()
		}
	}
	return out
}

func TestClientStatus(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		csds := statusv3.NewClientStatusDiscoveryServiceClient(r.beside(ServerOptions{Debug: true}).dial())
		fetch := func(typ envoy.Type) map[string]string {
			m, err := csds.FetchClientStatus(deadline(t), &statusv3.ClientStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(m.GetConfig()); n != 1 || m.GetConfig()[0].GetNode().GetId() != "envoy-1" {
				t.Fatalf("%d clients", n)
			}
			if strings.Contains(protojson.Format(m), "very-secret") {
				t.Fatal("a key is shown")
			}
			return statuses(m, typ)
		}
		eventually(t, "synced", func() bool {
			s := fetch(envoy.Endpoint)
			return s["a"] == "SYNCED" && s["b"] == "SYNCED" && s[""] == "SYNCED"
		})
		r.publish(upsert(assignment(t, "a", 2)))
		m := c.want(envoy.Endpoint, "a")
		r.publish(upsert(assignment(t, "b", 2)))
		eventually(t, "one sent, one not", func() bool {
			s := fetch(envoy.Endpoint)
			return s["a"] == "STALE" && s["b"] == "NOT_SENT" && s[""] == "NOT_SENT"
		})
		c.nack(m, "bad address")
		c.take(envoy.Endpoint, "b")
		eventually(t, "refused", func() bool {
			s := fetch(envoy.Endpoint)
			return s["a"] == "ERROR" && s["b"] == "SYNCED" && s[""] == "ERROR"
		})
		got := r.Streams()
		if len(got) != 1 || got[0].ID != "envoy-1" || got[0].Cluster != "edge" || got[0].Protocol != protocolName(delta) {
			t.Fatalf("streams %+v", got)
		}
		for _, typ := range got[0].Types {
			if want := (TypeStatus{Type: envoy.Endpoint, Acked: 1, Refused: 1, Nonce: typ.Nonce, Nack: "bad address"}); typ.Type == envoy.Endpoint && typ != want {
				t.Errorf("got %+v, want %+v", typ, want)
			}
		}
	})
}

func TestClientStatusOfOneNode(t *testing.T) {
	t.Parallel()
	r, _ := loaded(t, true)
	other := newClient(t, r.dial(), false, "envoy-2")
	other.subscribe(envoy.Cluster)
	other.take(envoy.Cluster, "a", "b")
	str, err := statusv3.NewClientStatusDiscoveryServiceClient(r.dial()).StreamClientStatus(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"envoy-1", "envoy-2"} {
		if err := str.Send(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{
			NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: node}},
		}}}); err != nil {
			t.Fatal(err)
		}
		m, err := str.Recv()
		if err != nil || len(m.GetConfig()) != 1 || m.GetConfig()[0].GetNode().GetId() != node {
			t.Errorf("%s: %v, %v", node, m, err)
		}
	}
	if err := str.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
