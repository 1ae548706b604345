package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"fairway/envoy"
	"fairway/translator"
	"fairway/translator/model"
	"fairway/watcher/files"
)

func translateCommand() *cobra.Command {
	c := DefaultConfig()
	var paths []string
	cmd := &cobra.Command{
		Use:   "translate -f FILE...",
		Short: "Print what Envoy would get for some manifests, offline",
		Long: `Print what Envoy would get for some manifests, offline: the resources as YAML
on standard output, private keys redacted, and the reports on standard error.
The exit status is 1 if a manifest cannot be read or a report is an error.`,
		Example: `  fairway translate -f ingress.yaml -f services.yaml
  kubectl get ing,svc,endpointslices -o yaml | fairway translate -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, errs, err := loadManifests(c, paths, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return translate(cmd, c, src, errs)
		},
	}
	cmd.Flags().StringSliceVarP(&paths, "filename", "f", nil, "file or folder of manifests; - is standard input (required)")
	cobra.CheckErr(cmd.MarkFlagRequired("filename"))
	return cmd
}

func loadManifests(c Config, paths []string, stdin io.Reader) (model.Source, []error, error) {
	for i, p := range paths {
		if p == "" {
			return nil, nil, errors.New("-f is empty: give a file or a folder, or - for standard input")
		}
		if p != "-" {
			continue
		}
		f, err := os.CreateTemp("", "fairway-*.yaml")
		if err != nil {
			return nil, nil, fmt.Errorf("keeping standard input: %w", err)
		}
		defer func() { _ = os.Remove(f.Name()) }()
		if _, err := io.Copy(f, stdin); err != nil {
			return nil, nil, fmt.Errorf("reading standard input: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, nil, fmt.Errorf("keeping standard input: %w", err)
		}
		paths[i] = f.Name()
	}
	src, errs := files.Options{IngressClass: c.IngressClass, ControllerClass: c.ControllerClass}.Load(paths...)
	return src, errs, nil
}

func translate(cmd *cobra.Command, c Config, src model.Source, errs []error) error {
	tc, err := c.translation(true)
	if err != nil {
		return err
	}
	bad := len(errs)
	for _, err := range errs {
		fmt.Fprintln(cmd.ErrOrStderr(), "Error", err)
	}
	if bad > 0 && isEmpty(src) {
		return countErrors(bad)
	}
	result := translator.Full(tc, src)
	out := bufio.NewWriter(cmd.OutOrStdout())
	for _, r := range result.Delta.Upserts {
		if err := render(out, r); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the resources: %w", err)
	}
	for _, v := range result.Verdicts {
		if !v.Served {
			fmt.Fprintln(cmd.ErrOrStderr(), "Warning", v.Ingress, "is not served: its class is not ours")
		}
		for _, r := range v.Reports {
			fmt.Fprintln(cmd.ErrOrStderr(), r.Severity, r.Object, r.Reason, r.Field+":", r.Message)
			if r.Severity == model.Error {
				bad++
			}
		}
	}
	return countErrors(bad)
}

func isEmpty(src model.Source) bool {
	for range src.Ingresses() {
		return false
	}
	return true
}

func countErrors(n int) error {
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New("1 error")
	default:
		return fmt.Errorf("%d errors", n)
	}
}

func render(w io.Writer, r *envoy.Resource) error {
	m, err := envoy.Redact(r).Any.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
	}
	text, err := envoy.RenderYAML(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "--- # %s %s\n%s", r.Type, r.Name, text)
	return err
}
