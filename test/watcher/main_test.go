// Package watcher_test runs the watcher and the status writer against a real
// kube-apiserver: what depends on its selectors, versions, rights and failures.
package watcher_test

import (
	"os"
	"testing"

	"fairway/test/rig"
)

// kube is shared: its start takes seconds. Each test has namespaces of its own.
var kube *rig.Kube

func TestMain(m *testing.M) {
	rig.Main(m, func(t rig.T) {
		kube = rig.StartKube(t, rig.KubeOptions{})
		// client-go panics when a test writes to an object of a store.
		os.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "true")
	})
}
