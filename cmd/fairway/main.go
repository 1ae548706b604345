// Command fairway is the Ingress controller: control plane and command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fairway/cmd/fairway/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := app.Command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fairway:", err)
		stop()
		os.Exit(1)
	}
}
