// Package watcher keeps Fairway's view of a Kubernetes cluster: shared
// informers hold the objects (Store is their model.Source), and a Queue says
// which of them changed. Handlers only enqueue keys, so the one consumer
// always works on the present state, however many events led to it.
//
// Listing, relisting after 410, back-off and token renewal are client-go's.
// What is added here: the selectors, smaller objects, two lanes, a readiness
// that means "every initial object went through its handler", and watches of
// single Secrets and ConfigMaps that come and go with the references to them.
package watcher
