package xds

import (
	"time"

	"fairway/envoy"
)

// Make before break. Types are visited in the order of envoy.Type; what has to
// wait for the client's answers stands in the two tables of conditions. A
// client may ask for a load assignment, a Secret or an extension config because
// something is warming for it, so adding those never waits.

// fullState are the types whose SotW responses list everything: what is missing
// is deleted.
var fullState = [envoy.NumTypes]bool{envoy.Cluster: true, envoy.Listener: true}

// alone are the types of which the incremental protocol sends one resource in a
// response. Envoy skips the Secrets behind one that it refuses, and accepts the
// refused one without a word when it is sent again: only alone it can be found.
var alone = [envoy.NumTypes]bool{envoy.Secret: true}

type phase int

const (
	adding phase = iota
	removing
	numPhases
)

// condition is what the client must have answered first.
type condition struct {
	introduced bool         // every Cluster that is new to the client
	added      []envoy.Type // everything added or changed of these types
	removed    []envoy.Type // everything removed of these types
}

type conditionTable [numPhases][envoy.NumTypes]condition

var conditions = conditionTable{
	adding: {
		envoy.Route:    {introduced: true},
		envoy.Listener: listenerCondition,
	},
	removing: {
		envoy.Cluster:         {added: []envoy.Type{envoy.Route, envoy.Listener}},
		envoy.Endpoint:        {removed: []envoy.Type{envoy.Cluster}},
		envoy.Secret:          {added: []envoy.Type{envoy.Listener}},
		envoy.ExtensionConfig: {added: []envoy.Type{envoy.Listener}},
		envoy.Route:           {added: []envoy.Type{envoy.Listener}},
		envoy.Listener:        listenerCondition,
	},
}

var listenerCondition = condition{
	introduced: true,
	added:      []envoy.Type{envoy.Secret, envoy.ExtensionConfig, envoy.Route},
}

// window bounds the unacknowledged responses of a type. Changes gather while
// the window is full. Clusters have room for several, because Envoy withholds
// the answer while one of them warms, and that must not hold up the others; what
// is sent alone would otherwise take a round trip each.
func (s *session) window(t envoy.Type) int {
	if t == envoy.Cluster || s.delta && alone[t] {
		return 8
	}
	return 1
}

// maxFlights bounds what a client that asks without ever answering can make the
// session remember, per type.
const maxFlights = 16

// warmingGrace is how long routes wait for a Cluster that has all it needs from
// us and may still be waiting for something else, such as a health check. One
// that never comes up must not hold up the routes of all others.
const warmingGrace = 250 * time.Millisecond

// open reports whether a type may enter a phase now. A gate that stays closed
// for the cap opens, and what it waited for is given up.
func (s *session) open(t envoy.Type, p phase, now time.Time) bool {
	s.endWarming(now)
	blocked := &s.types[t].blocked[p]
	if s.halfClosed || s.met(t, p) {
		*blocked = time.Time{}
		return true
	}
	if blocked.IsZero() {
		*blocked = now
	}
	deadline := blocked.Add(s.gateCap)
	if now.Before(deadline) {
		s.retryAt(deadline)
		if !s.warming.empty() {
			s.retryAt(s.warmingSince.Add(warmingGrace))
		}
		return false
	}
	*blocked = time.Time{}
	s.giveUp()
	return true
}

func (s *session) retryAt(at time.Time) {
	if s.retry.IsZero() || at.Before(s.retry) {
		s.retry = at
	}
}

// warm notes that a new Cluster has all it needs from us.
func (s *session) warm(i id, now time.Time) {
	if s.warming.empty() {
		s.warmingSince = now
	}
	s.introducing.unset(i)
	s.warming.set(i)
}

// endWarming stops waiting for Clusters whose grace is over.
func (s *session) endWarming(now time.Time) {
	if !s.warming.empty() && !now.Before(s.warmingSince.Add(warmingGrace)) {
		s.known.union(s.warming)
		s.warming = nil
	}
}

// met reports whether the client has answered what a phase has to wait for.
func (s *session) met(t envoy.Type, p phase) bool {
	c := s.order[p][t]
	if c.introduced && s.introducesClusters() {
		return false
	}
	for _, other := range c.added {
		if s.owesAdditions(other) {
			return false
		}
	}
	for _, other := range c.removed {
		if s.owesRemovals(other) {
			return false
		}
	}
	// An Envoy that comes back still routes as it did: it must have asked for
	// its routes before a Cluster can go.
	if p == removing && t == envoy.Cluster && s.returning {
		return s.types[envoy.Route].seen && s.types[envoy.Listener].seen
	}
	return true
}

// introducesClusters reports whether some Cluster is on its way that the client
// does not know.
func (s *session) introducesClusters() bool {
	ts := &s.types[envoy.Cluster]
	if !ts.seen {
		return false
	}
	if !s.introducing.empty() || !s.warming.empty() {
		return true
	}
	for i := range ts.dirty.all() {
		if it := s.tables[envoy.Cluster].entries[i].item; it != nil && !s.known.has(i) && !ts.refuses(it) {
			return true
		}
	}
	return false
}

// owesAdditions reports whether the client has still to take up something that
// was added or changed.
func (s *session) owesAdditions(t envoy.Type) bool {
	ts := &s.types[t]
	if !ts.seen {
		return false
	}
	if len(ts.groups) > 0 {
		return true
	}
	for _, f := range ts.flights {
		if !f.expired {
			return true
		}
	}
	for i := range ts.dirty.all() {
		if it := s.tables[t].entries[i].item; it == nil && t == envoy.Listener || it != nil && !ts.refuses(it) {
			return true
		}
	}
	return false
}

// owesRemovals reports whether the client has still to forget something.
func (s *session) owesRemovals(t envoy.Type) bool {
	ts := &s.types[t]
	for _, f := range ts.flights {
		if !f.expired && len(f.removed) > 0 {
			return true
		}
	}
	for i := range ts.dirty.all() {
		if s.tables[t].entries[i].item == nil && ts.held.has(i) {
			return true
		}
	}
	return false
}

// giveUp lets gates stop waiting for what was sent so far.
func (s *session) giveUp() {
	for t := range s.types {
		for _, f := range s.types[t].flights {
			f.expired = true
		}
	}
	s.known.union(s.introducing)
	s.known.union(s.warming)
	s.introducing, s.warming = nil, nil
}
