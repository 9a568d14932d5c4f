package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/internal/cli"
	"glimpse/kernels"
	"glimpse/training"

	"github.com/spf13/cobra"
)

func newExport() *cobra.Command {
	var (
		s3      objectstore.Settings
		adapter string
		replace bool
		pooling int
		dtype   string
		listIn  string
	)
	cmd := &cobra.Command{
		Use:   "export RUN DIR|s3://BUCKET/NAME",
		Short: "Copy the adapter of a run to a folder or an S3 bucket",
		Long: `Copy the adapter of a run to a folder or an S3 bucket.

RUN is the folder of a run (--run), an adapter folder, or a checkpoint; each may
also be an s3:// name. Of a run with several adapters each is exported to its name
below the target, unless --adapter picks one.

--pooling sets the width by which policies pool the adapter's scores, as it was chosen on
prompts of yours; without it that is what the adapter was trained with. --dtype bf16 rounds the
adapter's numbers to that type, which halves its files. --registry lists the adapter in the
registry.json of a folder or s3:// name above the target, by its model's weights: "evict
--adapter" then takes that folder for any model that is listed.`,
		Annotations: cli.Details(`A calibration.json that lies beside the adapter goes with it ("evict calibrate").

Of a run that has not ended, and of a checkpoint, the adapter is exported as it was at the
best validation so far or, without validations, at the checkpoint's last step.

Readers of the target see the whole adapter or none. What is in a bucket is never
replaced: an export of the same adapter to the same name changes nothing, and one of
another adapter is an error. An export that was cut off is finished by repeating it,
and sends only what is missing.

A registry has one adapter of a kind for a model; another one takes its place. An adapter is
listed when it is there as a whole, and several exports may list theirs at once.

Bucket, region, endpoint and credentials are those of the AWS SDK's environment
variables and files; --s3-endpoint and --s3-region override them.`),
		Example: `  train export path/to/run s3://bucket/adapters/llama
  train export path/to/run path/to/adapter --adapter qv --replace
  train export path/to/run.state path/to/adapters --replace
  train export path/to/run s3://bucket/adapters/llama/look --registry s3://bucket/adapters`,
		Args: cli.Args("RUN", "DIR|s3://BUCKET/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if replace && objectstore.IsURL(args[1]) {
				return fmt.Errorf("export: --replace: what is in an object store is never replaced; choose another name")
			}
			found, err := training.FindAdapters(ctx, args[0], adapter, s3)
			if err != nil {
				return fmt.Errorf("export %s: %w", args[0], err)
			}
			for _, f := range found {
				target := args[1]
				if len(found) > 1 {
					target = training.Below(target, f.Name)
				}
				if listIn != "" {
					if err := objectstore.CheckRegistry(listIn, target); err != nil {
						return fmt.Errorf("export %s: --registry: %w", args[0], err)
					}
				}
				if err := makeParent(target); err != nil {
					return fmt.Errorf("export %s: %w", args[0], err)
				}
				was := f.Adapter.SHA256()
				if cli.GivenFlags(cmd.Flags()).Given("pooling") {
					if err := kernels.CheckPoolWidth(pooling); err != nil {
						return fmt.Errorf("export: --pooling: %w", err)
					}
					f.Adapter.PoolingKernel = pooling
				}
				if dtype != "" {
					if err := f.Adapter.SetDType(dtype); err != nil {
						return fmt.Errorf("export: adapter %s: %w", f.Name, err)
					}
				}
				if f.Adapter.Calibration != nil && f.Adapter.SHA256() != was {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s is left out: it is of the adapter as it was before --pooling or --dtype\n", checkpoints.CalibrationFile)
					f.Adapter.Calibration = nil
				}
				what := fmt.Sprintf("%s adapter of %s, %d rows, from %s", f.Adapter.Kind, f.Adapter.Base.Name, f.Adapter.Embeddings.Rows, f.Source)
				if err := training.WriteAdapter(ctx, target, f.Adapter, replace, s3, cmd.ErrOrStderr(), cmd.OutOrStdout(), what); err != nil {
					return err
				}
				if listIn != "" {
					if err := objectstore.Register(ctx, listIn, target, f.Adapter, s3); err != nil {
						return fmt.Errorf("export %s: --registry: %w", args[0], err)
					}
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&adapter, "adapter", "", "name of the adapter to export, of a run with several; empty exports all")
	f.IntVar(&pooling, "pooling", 0, "width of the max pooling of the adapter's scores, odd; 1 is none")
	f.StringVar(&dtype, "dtype", "", "type of the numbers in files: "+strings.Join(checkpoints.DTypes, " or ")+"; empty is as they are, and float32 of a run")
	f.StringVar(&listIn, "registry", "", "folder or s3:// name above the target in whose registry.json the adapter is listed")
	f.BoolVar(&replace, "replace", false, "replace an adapter folder that exists")
	s3.Bind(f)
	cli.Everyday(cmd, "adapter", "pooling", "dtype", "registry", "replace")
	return cmd
}

func makeParent(target string) error {
	if objectstore.IsURL(target) {
		return nil
	}
	return os.MkdirAll(filepath.Dir(filepath.Clean(target)), 0o777)
}
