// Package xds serves Envoy resources over gRPC: an incremental store of encoded
// resources, one session per stream that decides what the client gets and when,
// and the gRPC services around them.
//
// The store owns the resources and the lock. A session owns what is known about
// one client and is touched only under that lock; it knows neither gRPC nor the
// stream library. A stream joins the two.
//
// The package knows nothing of Kubernetes or of how resources are made.
package xds
