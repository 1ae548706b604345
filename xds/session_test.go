package xds

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairway/envoy"
)

func TestSE01ChangesGatherWhileAnAnswerIsOut(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		r.publish(upsert(assignment(t, "a", 2)))
		m := c.want(envoy.Endpoint, "a")
		for port := range 50 {
			r.publish(upsert(assignment(t, "a", 100+port), assignment(t, "b", 100+port)))
		}
		c.silent()
		c.ack(m)
		c.take(envoy.Endpoint, "a", "b")
		r.publish(upsert(assignment(t, "a", 149))) // equal content
		c.silent()
	})
}

// refusing answers with a NACK every response that carries the bad resource and
// returns how many responses came until all others were current.
func (c *client) refusing(typ envoy.Type, bad, text string, total int) (messages, nacks int) {
	c.t.Helper()
	current := map[string]bool{}
	for len(current) < total-1 {
		m := c.any()
		if m.typ != typ {
			c.ack(m)
			continue
		}
		messages++
		if m.bodies[bad] != nil {
			nacks++
			c.nack(m, text)
			continue
		}
		for name := range m.bodies {
			current[name] = true
		}
		c.ack(m)
	}
	return messages, nacks
}

func TestSE08NackByHalves(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		names := many("e", 16)
		for _, test := range []struct {
			name, text      string
			messages, nacks int
		}{
			{"text without a name", "bad", 9, 5},
			{"text with the name", "malformed address in e00000: x", 3, 2},
		} {
			t.Run(test.name, func(t *testing.T) {
				var mu sync.Mutex
				var got []Nack
				r := newRig(t, Options{OnNack: func(n Nack) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, n)
				}}, ServerOptions{})
				for _, name := range names {
					r.publish(upsert(assignment(t, name, 1)))
				}
				c := r.client(delta)
				c.subscribe(envoy.Endpoint, names...)
				messages, nacks := c.refusing(envoy.Endpoint, names[0], test.text, len(names))
				if messages != test.messages || nacks != test.nacks {
					t.Errorf("%d messages, %d NACKs; want %d, %d", messages, nacks, test.messages, test.nacks)
				}
				c.silent()
				mu.Lock()
				want := []Nack{{Type: envoy.Endpoint, Names: []string{"e00000"}, Owners: []string{"Ingress test/e00000"}, Node: "envoy-1", Message: test.text}}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("reported %v, want %v", got, want)
				}
				mu.Unlock()
				r.publish(upsert(assignment(t, names[0], 7))) // corrected
				c.take(envoy.Endpoint, names[0])
				c.silent()
			})
		}
	})
}

func TestSE08FullStateShowsTheFormBefore(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, false)
	good := c.have[envoy.Cluster]
	r.publish(upsert(cluster(t, "a", 66)))
	c.nack(c.want(envoy.Cluster, "a", "b"), "Error adding/updating cluster(s) a: no")
	c.take(envoy.Endpoint, "a")
	eventually(t, "the NACK is read", func() bool { return testutil.ToFloat64(r.metrics.nacks[envoy.Cluster]) == 1 })
	r.publish(upsert(cluster(t, "c", 1)))
	c.take(envoy.Cluster, "a", "b", "c")
	r.publish(remove(envoy.Name{Type: envoy.Cluster, Name: "c"}))
	if m := c.take(envoy.Cluster, "a", "b"); m.version != good {
		t.Errorf("version %s, want that of the accepted state, %s", m.version, good)
	}
	r.publish(upsert(cluster(t, "new", 1)))
	c.nack(c.want(envoy.Cluster, "a", "b", "new"), "Error adding/updating cluster(s) new: no")
	eventually(t, "the NACK is read", func() bool { return testutil.ToFloat64(r.metrics.nacks[envoy.Cluster]) == 2 })
	r.publish(upsert(cluster(t, "d", 1)))
	c.take(envoy.Cluster, "a", "b", "d") // what was refused and had no form before is left out
}

// Of many Secrets, each in a response of its own and several under way, the
// refused one is found and parked, whatever Envoy says about it.
func TestSE08RefusedSecretIsFound(t *testing.T) {
	t.Parallel()
	refused := make(chan []string, 8)
	r := newRig(t, Options{OnNack: func(n Nack) { refused <- n.Names }}, ServerOptions{})
	var all []*envoy.Resource
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("s%02d", i))
		all = append(all, secret(t, names[i], "chain"))
	}
	r.publish(upsert(all...))
	c := r.client(true)
	c.subscribe(envoy.Secret, names...)
	got := map[string]bool{}
	for range names {
		m := c.any()
		if len(m.bodies) != 1 {
			t.Fatalf("%d Secrets in one response", len(m.bodies))
		}
		for name := range m.bodies {
			got[name] = true
			if name == "s17" {
				c.nack(m, "Failed to load incomplete private key")
			} else {
				c.ack(m)
			}
		}
	}
	if len(got) != len(names) {
		t.Errorf("%d of %d Secrets arrived", len(got), len(names))
	}
	if culprit := <-refused; !slices.Equal(culprit, []string{"s17"}) {
		t.Errorf("refused: %v", culprit)
	}
	c.silent()
	r.publish(upsert(secret(t, "s17", "mended")))
	c.take(envoy.Secret, "s17")
}

func TestSE08RefusedSecretIsNotShown(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	message := ""
	r := newRig(t, Options{OnNack: func(n Nack) {
		mu.Lock()
		defer mu.Unlock()
		message = n.Message
	}}, ServerOptions{})
	r.publish(world(t))
	c := r.client(true)
	c.subscribe(envoy.Secret, "cert")
	c.nack(c.want(envoy.Secret, "cert"), "Failed to load private key: name: \"cert\" tls_certificate { private_key { inline_string: \""+privateKey+"\" } }")
	eventually(t, "reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return message != ""
	})
	if strings.Contains(message, "very-secret") || !strings.HasPrefix(message, "Failed to load private key") {
		t.Errorf("message %q", message)
	}
	if got := fmt.Sprint(r.Streams()); strings.Contains(got, "very-secret") {
		t.Errorf("status %s", got)
	}
}

func TestSE09AppearsAndGoesAgain(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		c.subscribe(envoy.Endpoint, "x")
		c.ack(c.any())
		r.publish(upsert(assignment(t, "x", 1)))
		c.take(envoy.Endpoint, "x")
		r.publish(remove(envoy.Name{Type: envoy.Endpoint, Name: "x"}))
		if delta {
			c.ack(c.gone(envoy.Endpoint, []string{"x"}))
		}
		c.silent()
		r.publish(upsert(assignment(t, "x", 1)))
		c.take(envoy.Endpoint, "x")
	})
}

func TestSE10Wildcards(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, ServerOptions{})
	r.publish(world(t))
	c := r.client(true)
	c.subscribe(envoy.Listener, "*")
	c.take(envoy.Listener, "http")
	c.subscribe(envoy.Endpoint, "a")
	c.take(envoy.Endpoint, "a")
	c.send(requestOf{typ: envoy.Listener, unsubscribe: []string{"*"}})
	c.silent()
	r.publish(upsert(listener(t, "http", 1)))
	c.silent() // left
	c.subscribe(envoy.Listener, "*")
	c.take(envoy.Listener, "http") // entered again
	c.send(requestOf{typ: envoy.Endpoint, unsubscribe: []string{"a"}})
	c.silent()
	r.publish(upsert(assignment(t, "a", 3)))
	c.silent() // unsubscribed
	c.subscribe(envoy.Endpoint, "a")
	c.take(envoy.Endpoint, "a")
}

func TestSE10LegacyWildcardOfAnyType(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r := newRig(t, Options{}, ServerOptions{})
		r.publish(world(t))
		for typ, names := range map[envoy.Type][]string{
			envoy.Endpoint: {"a", "b"}, envoy.Route: {"http"}, envoy.Secret: {"cert"}, envoy.ExtensionConfig: {"limit"},
		} {
			c := r.client(delta)
			c.subscribe(typ)
			c.take(typ, names...)
			c.silent()
		}
	})
}

func TestSE10SotwNamesThenFewer(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, false)
	c.names[envoy.Endpoint] = []string{"b"}
	c.subscribe(envoy.Endpoint)
	c.silent()
	r.publish(upsert(assignment(t, "a", 3)))
	c.silent()
	r.publish(upsert(assignment(t, "b", 3)))
	c.take(envoy.Endpoint, "b")
	c.subscribe(envoy.Endpoint, "a")
	c.take(envoy.Endpoint, "a")
}

func TestSE11InitialVersions(t *testing.T) {
	t.Parallel()
	r, c := loaded(t, true)
	clusters, assignments := map[string]string{"gone": "1"}, c.lastVersions()
	for _, name := range []string{"a", "b"} {
		clusters[name] = r.tables[envoy.Cluster].lookup(name).version
	}
	r.publish(upsert(cluster(t, "a", 44))) // while it was away
	again := r.client(true)
	again.send(requestOf{typ: envoy.Cluster, initial: clusters})
	again.take(envoy.Cluster, "a")
	again.send(requestOf{typ: envoy.Endpoint, names: []string{"a", "b"}, initial: assignments})
	again.take(envoy.Endpoint, "a") // its bytes are the same
	again.subscribe(envoy.Listener)
	again.take(envoy.Listener, "http")
	again.subscribe(envoy.Route, "http")
	again.take(envoy.Route, "http")
	again.ack(again.gone(envoy.Cluster, []string{"gone"}))
	again.silent()
}

func TestSE13GoneAfterClose(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		r, c := loaded(t, delta)
		c.cancel()
		eventually(t, "no stream is left", func() bool {
			r.mu.RLock()
			defer r.mu.RUnlock()
			return len(r.streams) == 0
		})
		r.publish(upsert(assignment(t, "a", 5)))
	})
}

// TestSE14 forces the state-of-the-world server to drop a queued response.
func TestSE14NothingIsLostWhenTheLibraryDrops(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	s.Publish(world(t), time.Time{})
	st := s.open(false, true, false)
	defer st.close()
	lost := make(chan *response, 1)
	ask := func(names ...string) {
		r := request{key: new(int), typ: envoy.Endpoint, sub: subscription{names: names}}
		st.hold(r)
		if _, err := st.watch(r.key, false, func(r *response) bool { lost <- r; return true }); err != nil {
			t.Fatal(err)
		}
		st.decide(time.Now())
	}
	ask("a")
	if r := <-lost; len(r.items) != 1 {
		t.Fatalf("got %v", r.items)
	}
	ask("a", "b") // the first answer was never sent
	r := <-lost
	got := []string{r.items[0].name, r.items[1].name}
	if !slices.Equal(got, []string{"a", "b"}) || len(st.session.types[envoy.Endpoint].flights) != 1 {
		t.Fatalf("got %v, %d flights", got, len(st.session.types[envoy.Endpoint].flights))
	}
}

func TestSE15Storm(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{GateCap: 50 * time.Millisecond, OnNack: func(Nack) {}, OnSettled: func(uint64) {}}, ServerOptions{})
	r.publish(world(t))
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			name := fmt.Sprint("s", n%7)
			r.publish(upsert(cluster(t, name, n+1), assignment(t, name, n%60000+1), route(t, "http", "a", "b"), assignment(t, "a", n%60000+1)))
			r.publish(remove(envoy.Name{Type: envoy.Cluster, Name: name}, envoy.Name{Type: envoy.Endpoint, Name: name}))
		}
	})
	conn := r.dial()
	for n := range 40 {
		c := newClient(t, conn, n%2 == 0, "storm")
		c.subscribe(envoy.Cluster)
		c.subscribe(envoy.Endpoint, "a", "b", "s1")
		c.subscribe(envoy.Listener)
		c.subscribe(envoy.Route, "http")
		for k := range 25 {
			if m := c.any(); k%3 == 0 {
				c.nack(m, "no")
			} else {
				c.ack(m)
			}
		}
		c.cancel()
	}
	close(stop)
	busy.Wait()
	eventually(t, "no stream is left", func() bool { return len(r.Streams()) == 0 })
}

func TestSE16IdsComeBack(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		s := NewStore(Options{})
		s.Publish(world(t), time.Time{})
		st := s.open(delta, true, false)
		defer st.close()
		st.session.subscribe(envoy.Endpoint, subscription{wildcard: true}, 1)
		for n := range 12000 {
			name := fmt.Sprint("n", n)
			s.Publish(upsert(assignment(t, name, 1)), time.Time{})
			s.Publish(remove(envoy.Name{Type: envoy.Endpoint, Name: name}), time.Time{})
			if r := st.session.next(envoy.Endpoint, time.Unix(0, 0), s.generation); r != nil {
				st.session.sent(r, fmt.Sprint(n))
				st.session.answer(envoy.Endpoint, r.nonce, false, "", time.Unix(0, 0))
			}
		}
		if n := len(s.tables[envoy.Endpoint].entries); n > 1500 {
			t.Errorf("%d ids for 12000 names", n)
		}
	})
}
