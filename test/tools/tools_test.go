package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake returns a tool made from one pin file, and a count of its builds.
func fake(t *testing.T) (tool, string, *int) {
	t.Helper()
	pin := filepath.Join(t.TempDir(), "pin")
	write(t, pin, "v1")
	builds := 0
	return tool{
		name: "fake", why: "a test", usual: "1 s", pins: []string{pin},
		build: func(_ context.Context, target string) error {
			builds++
			return os.WriteFile(target, []byte("program"), 0o600)
		},
	}, pin, &builds
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInstallOnlyWhenThePinChanges(t *testing.T) {
	f, pin, builds := fake(t)
	bin := t.TempDir()
	var out bytes.Buffer
	install := func(want int) {
		t.Helper()
		if err := f.install(t.Context(), bin, &out); err != nil {
			t.Fatal(err)
		}
		if *builds != want {
			t.Fatalf("%d builds, want %d", *builds, want)
		}
	}
	install(1)
	install(1)
	write(t, pin, "v2")
	install(2)
	if err := os.Remove(filepath.Join(bin, "fake")); err != nil {
		t.Fatal(err)
	}
	install(3)
	info, err := os.Stat(filepath.Join(bin, "fake"))
	if err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("mode %v, %v", info, err)
	}
	for _, part := range []string{"fake: installing (a test), usually 1 s", "fake: done after "} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the output lacks %q:\n%s", part, out.String())
		}
	}
}

func TestFailedBuildKeepsTheOldProgram(t *testing.T) {
	f, pin, _ := fake(t)
	bin := t.TempDir()
	if err := f.install(t.Context(), bin, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	write(t, pin, "v2")
	broken := errors.New("does not compile")
	f.build = func(_ context.Context, target string) error {
		write(t, target, "half")
		return broken
	}
	if err := f.install(t.Context(), bin, &bytes.Buffer{}); !errors.Is(err, broken) {
		t.Fatalf("error = %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(bin, "fake")); err != nil || string(got) != "program" {
		t.Errorf("program = %q, %v", got, err)
	}
}

func TestGivenPrograms(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "etcd"), "not a program")
	t.Setenv("ENVOY", filepath.Join(dir, "missing"))
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	if _, err := givenEnvoy("envoy"); err == nil || !strings.Contains(err.Error(), "ENVOY") {
		t.Errorf("a missing Envoy: %v", err)
	}
	if _, err := givenKube("etcd"); err == nil || !strings.Contains(err.Error(), "is not a program") {
		t.Errorf("a file that cannot run: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, "etcd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := givenKube("etcd"); err != nil || got != filepath.Join(dir, "etcd") {
		t.Errorf("etcd = %q, %v", got, err)
	}
}

func TestChoose(t *testing.T) {
	if got, err := choose(all, []string{"etcd", "envoy"}); err != nil || len(got) != 2 || got[0].name != "etcd" {
		t.Errorf("chosen %v, %v", got, err)
	}
	if _, err := choose(all, []string{"etcd", "nope"}); err == nil || !strings.Contains(err.Error(), `unknown tool "nope"`) {
		t.Errorf("error = %v", err)
	}
}

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var out bytes.Buffer
	unlock, err := lock(t.Context(), path, &out)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(short, path, &out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: %v", err)
	}
	if !strings.Contains(out.String(), "waiting for another process") {
		t.Errorf("output = %q", out.String())
	}
	unlock()
	unlock, err = lock(t.Context(), path, &out)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
