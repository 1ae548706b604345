// Command tools installs the programs that the tests and the linter run: the
// real Envoy, etcd, kube-apiserver and kubectl, grpcurl and golangci-lint. It
// installs only what is missing or out of date.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `Installs the programs that Fairway's tests and linter run.

  go run ./test/tools [flags] [TOOL...]

Without a TOOL it installs all of them:
%s
A tool is installed anew when its pin changes: the module files under test/kube
and test/tools, or test/tools/envoy-requirements.txt. The Kubernetes programs
are compiled once, which needs about 5 GB of Go build cache.

Environment:
  ENVOY              use this Envoy and install none
  KUBEBUILDER_ASSETS use etcd, kube-apiserver and kubectl of this folder and build none

Examples:
  go run ./test/tools
  go run ./test/tools envoy grpcurl
  ENVOY=/usr/bin/envoy go run ./test/tools

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

// run installs the tools that args name and reports on out.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("tools", flag.ContinueOnError)
	flags.SetOutput(out)
	dir := flags.String("dir", filepath.Join(".cache", "bin"), "folder to install into")
	flags.Usage = func() {
		fmt.Fprintf(out, usage, list(all))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(all, flags.Args())
	if err != nil {
		return err
	}
	bin, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	return install(ctx, chosen, bin, out)
}

// install brings every tool in bin up to date. One process at a time does so;
// others wait for it.
func install(ctx context.Context, tools []tool, bin string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join("test", "kube", "go.mod")); err != nil {
		return errors.New("run this from the root of the checkout")
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(bin, ".lock"), out)
	if err != nil {
		return err
	}
	defer unlock()
	for _, t := range tools {
		if err := t.install(ctx, bin, out); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}
