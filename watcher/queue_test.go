package watcher

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairway/translator/model"
)

func svc(name string) model.Ref { return model.Ref{Kind: model.Service, Namespace: "d", Name: name} }

// names writes a set of Refs as "a b".
func names(refs map[model.Ref]struct{}) string {
	var out []string
	for _, r := range slices.SortedFunc(maps.Keys(refs), model.Ref.Compare) {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

// taken is one result of Take: when it came, what was in it, and how old it was.
type taken struct {
	at, age           time.Duration
	endpoints, config string
}

// step adds one key at a time since the start.
type step struct {
	at   time.Duration
	lane Lane
	name string
}

const ms = time.Millisecond

func TestQueueTiming(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []step
		want  []taken
	}{
		{"first config change at once", []step{{0, Config, "a"}}, []taken{{0, 0, "", "a"}}},
		{"followers wait for quiet", []step{{0, Config, "a"}, {10 * ms, Config, "b"}, {40 * ms, Config, "c"}},
			[]taken{{0, 0, "", "a"}, {90 * ms, 80 * ms, "", "b c"}}},
		{"quiet again, at once again", []step{{0, Config, "a"}, {10 * ms, Config, "b"}, {110 * ms, Config, "c"}},
			[]taken{{0, 0, "", "a"}, {60 * ms, 50 * ms, "", "b"}, {110 * ms, 0, "", "c"}}},
		{"a key is held once", []step{{0, Config, "a"}, {10 * ms, Config, "b"}, {20 * ms, Config, "b"}},
			[]taken{{0, 0, "", "a"}, {70 * ms, 60 * ms, "", "b"}}},
		{"endpoints at once", []step{{0, Endpoints, "a"}, {10 * ms, Endpoints, "b"}},
			[]taken{{0, 0, "a", ""}, {10 * ms, 0, "b", ""}}},
		{"endpoints overtake a gathering config lane", []step{{0, Config, "a"}, {10 * ms, Config, "b"}, {20 * ms, Endpoints, "e"}},
			[]taken{{0, 0, "", "a"}, {20 * ms, 0, "e", ""}, {60 * ms, 50 * ms, "", "b"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkTiming(t, tt.steps, tt.want) })
		})
	}
}

func checkTiming(t *testing.T, steps []step, want []taken) {
	q := NewQueue(50*ms, 500*ms)
	q.Synced()
	takeOne(t, q, time.Now()) // the empty first one
	start := time.Now()
	go func() {
		for _, s := range steps {
			time.Sleep(time.Until(start.Add(s.at)))
			q.Add(s.lane, svc(s.name))
		}
	}()
	for i, w := range want {
		if got := takeOne(t, q, start); got != w {
			t.Errorf("take %d: got %+v, want %+v", i, got, w)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if d, _, err := q.Take(ctx); err == nil {
		t.Errorf("one more take: %v", d)
	}
}

func takeOne(t *testing.T, q *Queue, start time.Time) taken {
	t.Helper()
	d, since, err := q.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return taken{time.Since(start), time.Since(since), names(d.Endpoints), names(d.Config)}
}

// A stream of changes that never pauses is handed out at the cap.
func TestQueueCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(50*ms, 500*ms)
		q.Synced()
		takeOne(t, q, time.Now())
		start := time.Now()
		var adder sync.WaitGroup
		adder.Go(func() {
			for range 50 {
				q.Add(Config, svc("x"))
				time.Sleep(30 * ms)
			}
		})
		var at []time.Duration
		for range 3 {
			at = append(at, takeOne(t, q, start).at)
		}
		if want := []time.Duration{0, 530 * ms, 1040 * ms}; !slices.Equal(at, want) {
			t.Errorf("taken at %v, want %v", at, want)
		}
		adder.Wait()
	})
}

func TestQueueBeforeSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(50*ms, 500*ms)
		start := time.Now()
		q.Add(Config, svc("a"))
		q.Add(Endpoints, svc("e"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := q.Take(ctx); err != context.DeadlineExceeded {
			t.Fatalf("took something before Synced: %v", err)
		}
		q.Add(Config, svc("b"))
		q.Synced()
		want := taken{time.Minute, time.Minute, "e", "a b"}
		if got := takeOne(t, q, start); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// A consumer that is busy finds everything together, with the oldest time.
func TestQueueBusyConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(50*ms, 500*ms)
		q.Synced()
		takeOne(t, q, time.Now())
		start := time.Now()
		q.Add(Config, svc("a"))
		time.Sleep(10 * ms)
		q.Add(Config, svc("b"))
		q.Add(Endpoints, svc("e"))
		time.Sleep(time.Second)
		want := taken{1010 * ms, 1010 * ms, "e", "a b"}
		if got := takeOne(t, q, start); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestQueueTakeEndsWithContext(t *testing.T) {
	q := NewQueue(ms, ms)
	q.Synced()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := q.Take(ctx); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
