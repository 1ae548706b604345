package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"fairway/envoy"
)

func bootstrapCommand() *cobra.Command {
	var o envoy.BootstrapOptions
	var output string
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the configuration that an Envoy starts with",
		Long: `Print the configuration that an Envoy starts with.

With --xds-tls-dir it consists of several files that refer to each other, so it
is written to the folder of -o and not to standard output.`,
		Example: `  fairway bootstrap --node-id dev --xds-address 127.0.0.1:18000 --admin-address 127.0.0.1:9901
  fairway bootstrap --node-id "$POD_NAME" --xds-address fairway.fairway-system:18000 \
    --xds-tls-dir /etc/fairway/xds --admin-socket /run/envoy/admin.sock --stats-address 0.0.0.0:8002 -o /run/envoy/envoy.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" {
				abs, err := filepath.Abs(output)
				if err != nil {
					return err
				}
				o.Dir = filepath.Dir(abs)
			} else if o.XDSTLSDir != "" {
				return fmt.Errorf("a bootstrap with TLS consists of several files: say with -o where to write them")
			}
			if o.AdminSocket != "" && o.AdminAddress != "" {
				return fmt.Errorf("give either --admin-socket or --admin-address")
			}
			if o.AdminSocket == "" && o.AdminAddress == "" {
				o.AdminSocket = filepath.Join(o.Dir, "admin.sock")
			}
			files, err := envoy.Bootstrap(o)
			if err != nil {
				return err
			}
			if output == "" {
				_, err = cmd.OutOrStdout().Write(files[envoy.BootstrapFile])
				return err
			}
			return writeFiles(files, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.NodeID, "node-id", "", "name of this Envoy; unique (required)")
	f.StringVar(&o.NodeCluster, "node-cluster", "fairway", "name of the fleet")
	f.StringVar(&o.XDSAddress, "xds-address", "", "HOST:PORT of the control plane (required)")
	f.StringVar(&o.XDSTLSDir, "xds-tls-dir", "", "directory with tls.crt, tls.key and ca.crt for the control plane; plaintext without it")
	f.StringVar(&o.AdminSocket, "admin-socket", "", "path of the unix socket of Envoy's admin interface; by default admin.sock beside the output")
	f.StringVar(&o.AdminAddress, "admin-address", "", "HOST:PORT of Envoy's admin interface, for development")
	f.StringVar(&o.StatsAddress, "stats-address", "", "HOST:PORT that answers /ready and /stats/prometheus")
	f.StringVarP(&output, "output", "o", "", "file to write; standard output without it")
	for _, required := range []string{"node-id", "xds-address"} {
		cobra.CheckErr(cmd.MarkFlagRequired(required))
	}
	return cmd
}

// writeFiles writes the bootstrap to path and its other files beside it.
func writeFiles(files map[string][]byte, path string) error {
	for name, content := range files {
		target := filepath.Join(filepath.Dir(path), name)
		if name == envoy.BootstrapFile {
			target = path
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return fmt.Errorf("writing the bootstrap: %w", err)
		}
	}
	return nil
}
