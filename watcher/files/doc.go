// Package files gives a model.Source from Kubernetes manifests on disk: what
// `kubectl apply` would send, without a cluster. The folder is read again when
// it changes; what cannot be read keeps its last good objects.
//
// It does what the API server does on the way in as far as translations depend
// on it (defaults, stringData, the default class), and validates nothing beyond
// the form of the manifests.
package files
