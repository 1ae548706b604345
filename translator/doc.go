// Package translator turns Kubernetes objects into Envoy resources and tells
// the owners of the objects what is wrong with them.
//
// It is keyed and incremental, in three derived layers, each a pure function of
// the one before:
//
//	Ingress            → fragment: its claims on hosts, server names, clusters
//	claims on a host   → virtual host
//	Service and slices → cluster and load assignment
//
// Apply recomputes what depends on the dirty keys; Full is the same code with
// everything dirty, so the two give the same bytes. There is no clock, no
// randomness, no goroutine and no I/O in here, and every map that reaches the
// output is sorted.
package translator
