package xds

import (
	"hash/fnv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"fairway/envoy"
)

// item is one version of one resource, in the form in which it is sent. It is
// immutable, except that prev is written under the store's exclusive lock.
type item struct {
	id      id
	name    string
	version string
	hash    uint64     // of name and version
	delta   mem.Buffer // the `resources` field of a DeltaDiscoveryResponse
	sotw    mem.Buffer // the `resources` field of a DiscoveryResponse: the tail of delta
	slow    bool       // a Cluster that may warm for longer than its load assignment takes
	prev    *item      // Cluster and Listener: the version before, one level deep

	generation uint64 // since which it is current
}

// entry is what the store knows about one name.
type entry struct {
	name string
	item *item           // nil: there is no such resource
	last *item           // the last form of a resource that is gone
	res  *envoy.Resource // as published; its bytes are shared with item
}

// table holds all resources of one type. Ids are given to names that exist and
// to names that a client asked for.
type table struct {
	typ     envoy.Type
	ids     map[string]id
	entries []entry
	free    []id
	live    int
	sum     uint64 // order-independent hash over all resources
	swept   int    // dead names at the end of the last sweep
}

// tables hold all resources, by type. They belong to the store and are guarded by
// its lock.
type tables [envoy.NumTypes]table

func newTables() *tables {
	ts := &tables{}
	for t := range ts {
		ts[t] = table{typ: envoy.Type(t), ids: map[string]id{}}
	}
	return ts
}

// intern returns the id of a name, giving it one if it has none.
func (t *table) intern(name string) id {
	if i, ok := t.ids[name]; ok {
		return i
	}
	var i id
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = id(len(t.entries))
		t.entries = append(t.entries, entry{})
	}
	t.entries[i] = entry{name: name}
	t.ids[name] = i
	return i
}

// lookup returns the current form of a name, nil if there is none.
func (t *table) lookup(name string) *item {
	if i, ok := t.ids[name]; ok {
		return t.entries[i].item
	}
	return nil
}

// put makes res, under the given version, the current form of its name.
func (t *table) put(res *envoy.Resource, version string, generation uint64) id {
	i := t.intern(res.Name)
	e := &t.entries[i]
	it, body := newItem(i, res, version)
	it.generation = generation
	if old := e.item; old != nil {
		t.sum -= old.hash
		old.prev = nil
		if fullState[t.typ] {
			it.prev = old
		}
	} else {
		t.live++
	}
	t.sum += it.hash
	e.item, e.last, e.res = it, nil, shared(res, body)
	return i
}

// remove takes away the current form of a name; ok is false if there was none.
func (t *table) remove(name string) (i id, ok bool) {
	i, ok = t.ids[name]
	if !ok || t.entries[i].item == nil {
		return 0, false
	}
	e := &t.entries[i]
	t.sum -= e.item.hash
	t.live--
	e.item.prev = nil
	e.item, e.last, e.res = nil, e.item, nil
	return i, true
}

// due reports whether enough names are dead to look for ids to take back.
func (t *table) due() bool {
	dead := len(t.ids) - t.live
	return dead >= 64 && dead >= t.live && dead >= 2*t.swept
}

// sweep takes back the ids of dead names that are not held.
func (t *table) sweep(held bitset) {
	for name, i := range t.ids {
		if t.entries[i].item == nil && !held.has(i) {
			delete(t.ids, name)
			t.entries[i] = entry{}
			t.free = append(t.free, i)
		}
	}
	t.swept = len(t.ids) - t.live
}

// newItem encodes a resource for both protocols and returns the resource's own
// bytes within that encoding. The `resource` field of a Resource and the
// `resources` field of a DiscoveryResponse have the same number, so the second
// form is the end of the first.
func newItem(i id, res *envoy.Resource, version string) (*item, []byte) {
	const typeURL, value = 1, 2
	url, body := res.Any.GetTypeUrl(), res.Any.GetValue()
	anySize := field(typeURL, len(url)) + field(value, len(body))
	size := field(resourceVersion, len(version)) + field(resourceName, len(res.Name)) + field(resources, anySize)

	b := make([]byte, 0, field(resources, size))
	b = header(b, resources, size)
	b = append(header(b, resourceVersion, len(version)), version...)
	b = append(header(b, resourceName, len(res.Name)), res.Name...)
	tail := len(b)
	b = header(b, resources, anySize)
	b = append(header(b, typeURL, len(url)), url...)
	b = append(header(b, value, len(body)), body...)

	it := &item{id: i, name: res.Name, version: version, hash: contentHash(res.Name, version)}
	it.delta, it.sotw = mem.SliceBuffer(b), mem.SliceBuffer(b[tail:])
	it.slow = res.Type == envoy.Cluster && slow(body)
	return it, b[len(b)-len(body):]
}

// slow reports whether an encoded Cluster has active health checks or a
// transport socket: it may then wait for a probe or a Secret, and only the
// acknowledgement of the Cluster itself says that it is usable.
func slow(cluster []byte) bool {
	const healthChecks, transportSocket, socketMatches = 8, 24, 43
	for len(cluster) > 0 {
		num, _, n := protowire.ConsumeField(cluster)
		if n < 0 {
			return true
		}
		if num == healthChecks || num == transportSocket || num == socketMatches {
			return true
		}
		cluster = cluster[n:]
	}
	return false
}

// contentHash mixes name and version, so that a sum of hashes tells sets of
// resources apart.
func contentHash(name, version string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(version))
	return h.Sum64()
}
