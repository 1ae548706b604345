package watcher

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// client-go reads this when an informer is made: a test that writes to an
	// object of a store panics.
	os.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "true")
	goleak.VerifyTestMain(m)
}
