// Command demo shows Fairway's main job on one machine, without a cluster: a
// folder of Kubernetes manifests, the control plane, a real Envoy, and two
// backends between which an endpoint moves.
//
// It expects bin/fairway and .cache/bin/envoy (or $ENVOY) below the working
// folder; `make demo` sees to both. With ONCE=1 it exits after the tour.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.tour(ctx); err != nil {
		s.printLogs()
		return err
	}
	if os.Getenv("ONCE") == "1" {
		return nil
	}
	fmt.Println("\nEverything keeps running; edit the files and see. Ctrl-C ends it.")
	<-ctx.Done()
	return nil
}
