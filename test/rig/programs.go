package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Root returns the root folder of the checkout.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module fairway\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the working folder is not inside the checkout")
		}
	}
}

// Program returns the path of one of the programs that "make tools" installs.
// ENVOY and KUBEBUILDER_ASSETS take precedence.
func Program(t T, name string) string {
	t.Helper()
	path, err := findProgram(name)
	if err != nil {
		t.Fatalf("%s is missing, run \"make tools\": %v", name, err)
	}
	return path
}

func findProgram(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".cache", "bin", name)
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	switch name {
	case "envoy":
		if given := os.Getenv("ENVOY"); given != "" {
			path = given
		}
	case "etcd", "kube-apiserver", "kubectl":
		if assets != "" {
			path = filepath.Join(assets, name)
		}
	}
	_, err = os.Stat(path)
	return path, err
}

// buildFairway compiles the binary under test once per process and returns its
// path. FAIRWAY=path uses another one.
var buildFairway = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("FAIRWAY"); given != "" {
		return given, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	readSources(root)
	target := filepath.Join(root, ".cache", "test", "fairway")
	unlock, err := lockFile(target + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.Command("go", "build", "-trimpath", "-o", target, "./cmd/fairway")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/fairway: %w\n%s", err, out)
	}
	return target, nil
})

// readSources lists the product's folders for the sake of go test: it notes
// what a test reads and so knows that a cached result is out of date when the
// binary under test would be another one.
func readSources(root string) {
	for _, dir := range []string{"cmd", "envoy", "translator", "watcher", "xds", "manifests"} {
		// A package that is missing fails the build, with a better message.
		_ = filepath.WalkDir(filepath.Join(root, dir), func(string, os.DirEntry, error) error { return nil })
	}
}

// lockFile waits for an exclusive lock between processes.
func lockFile(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
