// Package app is the wiring of the fairway binary: the command line, and the
// control plane as something that a test can start in its own process.
package app

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Version is set by the linker.
var Version = "dev"

// Command returns the command line. Errors are returned, not printed.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:           "fairway",
		Short:         "An Ingress controller that drives Envoy over xDS",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       Version,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(serveCommand(), bootstrapCommand(), translateCommand(), certsCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "fairway", Version)
			return err
		},
	}
}
