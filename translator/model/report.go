package model

import (
	"cmp"
	"slices"
)

// Severity says how bad a Report is.
type Severity string

// Error: part of what the object asks for is not served. Warning: it is served,
// but differently than its owner may expect.
const (
	Error   Severity = "Error"
	Warning Severity = "Warning"
)

// Report tells the owner of an object about one problem with it. It becomes a
// Kubernetes Event, a line of `fairway translate`, or a log line.
type Report struct {
	Object   Ref
	Reason   string // CamelCase and stable, such as ServiceNotFound
	Severity Severity
	Field    string // path of the field in the object, such as spec.rules[0].host
	Message  string // what is wrong and what to do, in one sentence
}

// Compare orders Reports by object, field, reason and message.
func (r Report) Compare(o Report) int {
	return cmp.Or(r.Object.Compare(o.Object), cmp.Compare(r.Field, o.Field), cmp.Compare(r.Reason, o.Reason), cmp.Compare(r.Message, o.Message))
}

// Verdict is all that a translation concluded about one Ingress. Every verdict
// replaces the former one of the same Ingress.
type Verdict struct {
	Ingress Ref
	Served  bool // the Ingress exists and its class is ours
	// Incomplete: something that the Ingress names does not exist. Watches of
	// different kinds are not in step, so it may exist and not be known yet.
	Incomplete bool
	Reports    []Report // sorted; empty when all is well
}

// Equal reports whether two verdicts say the same.
func (v Verdict) Equal(o Verdict) bool {
	return v.Ingress == o.Ingress && v.Served == o.Served && v.Incomplete == o.Incomplete && slices.Equal(v.Reports, o.Reports)
}
