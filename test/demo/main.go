// Command demo shows Fairway's main job on one machine, without a cluster: a
// folder of Kubernetes manifests, the control plane, a real Envoy, and two
// backends between which an endpoint moves.
//
// It expects bin/fairway (or $FAIRWAY) and .cache/bin/envoy (or $ENVOY) below the
// working folder; `make demo` sees to both. With ONCE=1 it exits after the tour.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
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
	fmt.Printf("\nEverything keeps running. Edit a file in %s, such as the port in endpoints.yaml or a host in\ningress.yaml, and ask again; what Fairway says about it is in %s. Ctrl-C ends it.\n", s.objects, s.fairwayLog())
	<-ctx.Done()
	return nil
}
