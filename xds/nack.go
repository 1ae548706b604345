package xds

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"fairway/envoy"
)

// refusal is a resource that the client refused. It is not sent again until the
// store holds another version.
type refusal struct {
	item *item
	good *item // shown instead where responses are full state; may be nil
}

// refuses reports whether the client refused this very version.
func (ts *typeState) refuses(it *item) bool { return ts.refused[it.id].item == it }

// answer takes in the client's answer to the response with the given nonce.
// text is the error of a refusal.
func (s *session) answer(t envoy.Type, nonce string, refused bool, text string, now time.Time) {
	ts := &s.types[t]
	at := slices.IndexFunc(ts.flights, func(f *response) bool { return f.nonce == nonce })
	if nonce == "" || at < 0 {
		return
	}
	first := at
	if !s.delta {
		first = 0 // an answer covers what was sent before
	}
	answered := slices.Clone(ts.flights[first : at+1])
	ts.flights = slices.Delete(ts.flights, first, at+1)
	for _, r := range answered[:len(answered)-1] {
		s.accept(r, now)
	}
	r := answered[len(answered)-1]
	switch {
	case s.debug || !refused:
		s.out.acks[t]++
		s.accept(r, now)
	default:
		s.out.nacks[t]++
		s.refuse(r, text, now)
	}
}

// accept takes in that the client has what r brought.
func (s *session) accept(r *response, now time.Time) {
	ts := &s.types[r.typ]
	s.introduced(r)
	for i := range r.warms.all() {
		if s.introducing.has(i) {
			s.warm(i, now)
		}
	}
	for _, it := range r.fresh {
		delete(ts.refused, it.id)
	}
	ts.version = r.version
	r.done(now)
}

// introduced makes the Clusters that r brought known, unless they were taken
// away again since.
func (s *session) introduced(r *response) {
	for i := range r.introduces.all() {
		if s.introducing.has(i) || s.warming.has(i) {
			s.notIntroduced(i)
			s.known.set(i)
		}
	}
}

// done tells those who wait for the changes in r that the client has answered.
func (r *response) done(now time.Time) {
	for _, p := range r.waits {
		p.answered(now)
	}
	r.waits = nil
}

// refuse finds out which resource is at fault. Alone in its response it is; in
// a full-state response Envoy has taken the others and names the culprit; else
// they are sent again apart.
func (s *session) refuse(r *response, text string, now time.Time) {
	ts := &s.types[r.typ]
	ts.nack = nackMessage(r.typ, text)
	s.removeAgain(r)
	culprits := r.fresh
	switch {
	case !s.delta && fullState[r.typ]:
		if in := named(r.items, text); len(in) > 0 {
			culprits = named(r.fresh, text)
		}
	case len(r.fresh) > 1:
		suspects, rest := split(r.fresh, text)
		ts.groups = slices.Insert(ts.groups, 0, ids(suspects), ids(rest))
		ts.takeBack(r)
		return
	}
	for _, it := range culprits {
		s.park(r, it)
	}
	s.introduced(r)
	if len(culprits) > 0 || len(r.fresh) == 0 {
		s.report(r.typ, culprits)
	}
	r.done(now)
}

// removeAgain makes the removals of a refused response due again: the client
// may have refused it as a whole. A response that only removes is not repeated.
func (s *session) removeAgain(r *response) {
	ts := &s.types[r.typ]
	if !s.delta || len(r.fresh) == 0 {
		return
	}
	for _, m := range r.removed {
		if !ts.wants(m.id) {
			continue
		}
		ts.held.set(m.id)
		if s.tables[r.typ].entries[m.id].item == nil {
			ts.taint(m.id, max(r.since, 1))
		}
	}
}

// park marks a resource of r as refused.
func (s *session) park(r *response, it *item) {
	t := r.typ
	ts := &s.types[t]
	if ts.refused == nil {
		ts.refused = map[id]refusal{}
	}
	var good *item
	if len(r.before) > 0 {
		good = r.before[slices.Index(r.fresh, it)]
	}
	if earlier, ok := ts.refused[it.id]; ok && earlier.item == good {
		good = earlier.good
	}
	ts.refused[it.id] = refusal{it, good}
	if s.tables[t].entries[it.id].item == it {
		ts.dirty.unset(it.id)
		ts.asked.unset(it.id)
		ts.clean()
	}
	if t == envoy.Cluster {
		s.notIntroduced(it.id)
	}
}

// report hands a refusal to the caller.
func (s *session) report(t envoy.Type, culprits []*item) {
	n := Nack{Type: t, Message: s.types[t].nack}
	for _, it := range culprits {
		n.Names = append(n.Names, it.name)
		if res := s.tables[t].entries[it.id].res; res != nil {
			n.Owners = append(n.Owners, res.Owners...)
		}
	}
	slices.Sort(n.Owners)
	n.Owners = slices.Compact(n.Owners)
	s.out.refusals = append(s.out.refusals, n)
}

// split parts refused resources into those that the error text names and the
// rest, or into halves if it names none or all.
func split(items []*item, text string) (suspects, rest []*item) {
	suspects = named(items, text)
	if len(suspects) == 0 || len(suspects) == len(items) {
		half := len(items) / 2
		return items[:half], items[half:]
	}
	for _, it := range items {
		if !slices.Contains(suspects, it) {
			rest = append(rest, it)
		}
	}
	return suspects, rest
}

// named returns the items whose names occur in the text as whole words:
// shop/web/80 is not named by shop/web/8080. It reads the text once, since both
// may be large and everybody waits meanwhile.
func named(items []*item, text string) []*item {
	occurs := make(map[string]bool, len(items))
	for _, it := range items {
		occurs[it.name] = false
	}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r >= utf8.RuneSelf || !nameByte(byte(r)) }) {
		word = strings.TrimRight(word, ".")
		if _, known := occurs[word]; known {
			occurs[word] = true
		}
	}
	var out []*item
	for _, it := range items {
		if occurs[it.name] {
			out = append(out, it)
		}
	}
	return out
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-/~.", c) >= 0
}

func ids(items []*item) []id {
	out := make([]id, len(items))
	for n, it := range items {
		out[n] = it.id
	}
	return out
}

// nextGroup takes the resources that are to be sent apart next, in their
// current form.
func (s *session) nextGroup(t envoy.Type) []*item {
	ts := &s.types[t]
	var items []*item
	for len(items) == 0 && len(ts.groups) > 0 {
		for _, i := range ts.groups[0] {
			it := s.tables[t].entries[i].item
			if it != nil && ts.wants(i) && !ts.refuses(it) {
				items = append(items, it)
			} else if t == envoy.Cluster {
				s.notIntroduced(i)
			}
		}
		ts.groups = ts.groups[1:]
	}
	if len(ts.groups) == 0 {
		ts.groups = nil
	}
	return items
}
