package app

import (
	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	c := DefaultConfig()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane",
		Long: `Run the control plane: watch Ingresses, Services, EndpointSlices and Secrets,
and stream what they mean to the connected Envoys.`,
		Example: `  fairway serve --xds-tls-dir /etc/fairway/xds
  fairway serve --kubeconfig ~/.kube/config --xds-address 127.0.0.1:18000 --xds-insecure
  fairway serve --manifests ./objects --xds-address 127.0.0.1:18000 --xds-insecure`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := New(c, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		},
	}
	c.flags(cmd.Flags())
	return cmd
}
