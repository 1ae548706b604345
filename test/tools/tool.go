package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// tool is one program to install.
type tool struct {
	name  string
	why   string // what it is for, as the progress line says
	usual string // how long a cold install takes on two cores
	pins  []string
	// given returns the path of a program that the environment provides
	// instead; may be nil.
	given func(name string) (string, error)
	// build writes the program to the file target.
	build func(ctx context.Context, target string) error
}

const (
	kubeVersion = "v1.37.2"
	kubeFlags   = "-s -w -X k8s.io/component-base/version.gitVersion=" + kubeVersion
	slimFlags   = "-s -w"
)

// all lists the tools in the order in which they are installed: the quick ones
// first, so that a missing prerequisite shows early.
var all = []tool{
	{
		name: "envoy", why: "the proxy under test", usual: "10 s",
		pins:  []string{envoyRequirements},
		given: givenEnvoy,
		build: downloadEnvoy,
	},
	{
		name: "grpcurl", why: "asks Fairway what it serves", usual: "30 s",
		pins:  modulePins("test/tools/grpcurl"),
		build: goBuild("test/tools/grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl", slimFlags),
	},
	{
		name: "etcd", why: "the API server's store", usual: "40 s",
		pins:  modulePins("test/kube", "test/kube/etcd/main.go"),
		given: givenKube,
		build: goBuild("test/kube", "./etcd", slimFlags),
	},
	{
		name: "kube-apiserver", why: "the API under test", usual: "5 to 9 min",
		pins:  modulePins("test/kube", "test/kube/kube-apiserver/main.go"),
		given: givenKube,
		build: goBuild("test/kube", "./kube-apiserver", kubeFlags),
	},
	{
		name: "kubectl", why: "applies manifests as people do", usual: "1 min after kube-apiserver",
		pins:  modulePins("test/kube", "test/kube/kubectl/main.go"),
		given: givenKube,
		build: goBuild("test/kube", "./kubectl", kubeFlags),
	},
	{
		name: "golangci-lint", why: "make lint runs it", usual: "1 to 2 min",
		pins:  modulePins("test/tools/golangci-lint"),
		build: goBuild("test/tools/golangci-lint", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", slimFlags),
	},
}

// choose returns the tools with the given names, or all without names.
func choose(tools []tool, names []string) ([]tool, error) {
	if len(names) == 0 {
		return tools, nil
	}
	var chosen []tool
	for _, name := range names {
		found := false
		for _, t := range tools {
			if t.name == name {
				chosen, found = append(chosen, t), true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown tool %q; the tools are:\n%s", name, list(tools))
		}
	}
	return chosen, nil
}

func list(tools []tool) string {
	var b strings.Builder
	for _, t := range tools {
		fmt.Fprintf(&b, "  %-15s %s (first time: %s)\n", t.name, t.why, t.usual)
	}
	return b.String()
}

// install puts the tool into bin unless the environment provides it or the one
// that is there was made from the same pins.
func (t tool) install(ctx context.Context, bin string, out io.Writer) error {
	if t.given != nil {
		path, err := t.given(t.name)
		if err != nil {
			return err
		}
		if path != "" && filepath.Dir(path) != bin {
			fmt.Fprintf(out, "%s: using %s\n", t.name, path)
			return nil
		}
	}
	want, err := t.stamp()
	if err != nil {
		return err
	}
	target, stampFile := filepath.Join(bin, t.name), filepath.Join(bin, "."+t.name+".stamp")
	have, _ := os.ReadFile(stampFile)
	if _, err := os.Stat(target); err == nil && string(have) == want {
		return nil
	}
	done := progress(out, t)
	err = t.replace(ctx, target)
	done(err)
	if err != nil {
		return err
	}
	return writeFile(stampFile, []byte(want))
}

// replace builds beside the target and renames, so that whoever runs the old
// program keeps it and nobody ever sees half of the new one.
func (t tool) replace(ctx context.Context, target string) error {
	next := filepath.Join(filepath.Dir(target), "."+t.name+".new")
	defer os.Remove(next)
	if err := t.build(ctx, next); err != nil {
		return err
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	return os.Rename(next, target)
}

// stamp identifies what the tool is made from.
func (t tool) stamp() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, t.name, runtime.GOOS, runtime.GOARCH, kubeFlags)
	for _, pin := range t.pins {
		b, err := os.ReadFile(pin)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, pin, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func writeFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
