package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/internal/tempdir"
	"glimpse/training"

	"glimpse/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// bindStore adds the flags of object stores.
func (s *spec) bindStore(f *pflag.FlagSet) {
	f.StringVar(&s.Export, "export", s.Export, "folder or s3://BUCKET/NAME that the adapter is also written to at the end; of several adapters each has its name below it")
	f.StringVar(&s.Upload, "upload", s.Upload, "folder or s3://BUCKET/NAME that every checkpoint is sent to while the run goes on; --resume takes the newest from there where this machine has none")
	s.S3.Bind(f)
}

// exportTarget is where adapter i is exported to, "" for nowhere.
func (s *spec) exportTarget(i int) string {
	if s.Export == "" || len(s.Adapters) == 1 {
		return s.Export
	}
	return below(s.Export, s.Adapters[i].name())
}

func below(folder, name string) string {
	if objectstore.IsURL(folder) {
		return strings.TrimSuffix(folder, "/") + "/" + name
	}
	return filepath.Join(folder, name)
}

// checkTargets makes sure that the adapters can be written where they are wanted. A
// run whose steps were all done before may find what it wrote before it was killed:
// that is compared when it is written again.
func (s *spec) checkTargets(ctx context.Context, finished bool) error {
	for i, dir := range s.Outs {
		for _, target := range []string{dir, s.exportTarget(i)} {
			if target == "" {
				continue
			}
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) && s.ownFolder(target) {
				continue // the run makes the folder's parents
			}
			replace := s.Replace && !objectstore.IsURL(target)
			err := objectstore.CheckAdapterTarget(ctx, target, replace, s.S3)
			if err != nil && !(finished && errors.Is(err, fs.ErrExist)) {
				return err
			}
		}
	}
	return nil
}

// deliver writes adapter i to its folder, and to where it is exported.
func (s *spec) deliver(ctx context.Context, i int, a *checkpoints.Adapter, log, out io.Writer, what string) error {
	for _, target := range []string{s.Outs[i], s.exportTarget(i)} {
		if target == "" {
			continue
		}
		replace := s.Replace && !objectstore.IsURL(target)
		if err := writeAdapter(ctx, target, a, replace, s.S3, log, out, what); err != nil {
			return err
		}
	}
	return nil
}

func writeAdapter(ctx context.Context, target string, a *checkpoints.Adapter, replace bool, s3 objectstore.Settings, log, out io.Writer, what string) error {
	created, err := objectstore.WriteAdapter(ctx, target, a, replace, s3, log)
	if err != nil {
		return err
	}
	if !created {
		what += " (it was there already)"
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", target, what)
	return err
}

func newExport() *cobra.Command {
	var (
		s3      objectstore.Settings
		adapter string
		replace bool
	)
	cmd := &cobra.Command{
		Use:   "export RUN DIR|s3://BUCKET/NAME",
		Short: "Copy the adapter of a run to a folder or an S3 bucket",
		Long: `Copy the adapter of a run to a folder or an S3 bucket.

RUN is the folder of a run (--run), an adapter folder, or a checkpoint; each may
also be an s3:// name. Of a run that has not ended, and of a checkpoint, the adapter
is exported as it was at the best validation so far or, without validations, at the
checkpoint's last step. Of a run with several adapters each is exported to its name
below the target, unless --adapter picks one.

Readers of the target see the whole adapter or none. What is in a bucket is never
replaced: an export of the same adapter to the same name changes nothing, and one of
another adapter is an error. An export that was cut off is finished by repeating it,
and sends only what is missing.

Bucket, region, endpoint and credentials are those of the AWS SDK's environment
variables and files; --s3-endpoint and --s3-region override them.`,
		Example: `  train export path/to/run s3://bucket/adapters/llama
  train export path/to/run path/to/adapter --adapter qv
  train export path/to/run.state path/to/adapter`,
		Args: cli.Args("RUN", "DIR|s3://BUCKET/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if replace && objectstore.IsURL(args[1]) {
				return fmt.Errorf("export: --replace: what is in an object store is never replaced; choose another name")
			}
			found, err := findAdapters(ctx, args[0], adapter, s3)
			if err != nil {
				return fmt.Errorf("export %s: %w", args[0], err)
			}
			for _, f := range found {
				target := args[1]
				if len(found) > 1 {
					target = below(target, f.name)
				}
				if err := makeParent(target); err != nil {
					return fmt.Errorf("export %s: %w", args[0], err)
				}
				what := fmt.Sprintf("%s adapter of %s, %d rows, from %s", f.adapter.Kind, f.adapter.Base.Name, f.adapter.Embeddings.Rows, f.source)
				if err := writeAdapter(ctx, target, f.adapter, replace, s3, cmd.ErrOrStderr(), cmd.OutOrStdout(), what); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&adapter, "adapter", "", "name of the adapter, of a run that trains several; without it all of them")
	f.BoolVar(&replace, "replace", false, "replace an adapter folder that exists")
	s3.Bind(f)
	return cmd
}

func makeParent(target string) error {
	if objectstore.IsURL(target) {
		return nil
	}
	return os.MkdirAll(filepath.Dir(filepath.Clean(target)), 0o777)
}

// runAdapter is an adapter that an export has found.
type runAdapter struct {
	name, source string
	adapter      *checkpoints.Adapter
}

// findAdapters reads the adapters of what a user calls a run: an adapter folder, a
// folder of them, a run's folder with finished adapters or a state, a checkpoint, or a
// folder of uploaded ones.
func findAdapters(ctx context.Context, name, only string, s3 objectstore.Settings) ([]runAdapter, error) {
	if !objectstore.IsURL(name) {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return fromCheckpoint(name, name, only)
		}
		return fromFolder(name, only)
	}
	a, err := objectstore.ReadAdapter(ctx, name, s3)
	if err == nil {
		return pick([]runAdapter{{name: path.Base(name), source: name, adapter: a}}, only)
	}
	if !errors.Is(err, checkpoints.ErrNotAdapter) {
		return nil, err
	}
	dir, err := tempdir.New("", "glimpse-checkpoint-")
	if err != nil {
		return nil, err
	}
	defer dir.Remove()
	local := filepath.Join(dir.Path, "state")
	store, key, err := objectstore.Open(ctx, name, s3)
	if err != nil {
		return nil, err
	}
	if _, err := store.Stat(ctx, key); err == nil { // one checkpoint by its name
		if err := objectstore.Download(ctx, store, key, local); err != nil {
			return nil, err
		}
		return fromCheckpoint(local, name, only)
	} else if !errors.Is(err, objectstore.ErrNotExist) {
		return nil, err
	}
	check := func(path string) error {
		_, err := training.ReadCheckpoint(path)
		return err
	}
	if _, err := objectstore.FetchCheckpoint(ctx, name, local, s3, check, io.Discard); err != nil {
		if errors.Is(err, objectstore.ErrNotExist) {
			return nil, fmt.Errorf("there is neither an adapter nor a checkpoint of that name: %w", err)
		}
		return nil, err
	}
	return fromCheckpoint(local, name, only)
}

// adaptersDir is where a run's folder has its adapters.
const adaptersDir = "adapters"

func fromFolder(dir, only string) ([]runAdapter, error) {
	if _, err := os.Stat(filepath.Join(dir, checkpoints.AdapterManifest)); err == nil {
		a, err := checkpoints.ReadAdapter(dir)
		if err != nil {
			return nil, err
		}
		return pick([]runAdapter{{name: filepath.Base(dir), source: dir, adapter: a}}, only)
	}
	entries, err := os.ReadDir(filepath.Join(dir, adaptersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []runAdapter
	for _, e := range entries {
		folder := filepath.Join(dir, adaptersDir, e.Name())
		if _, err := os.Stat(filepath.Join(folder, checkpoints.AdapterManifest)); err != nil || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		a, err := checkpoints.ReadAdapter(folder)
		if err != nil {
			return nil, err
		}
		found = append(found, runAdapter{e.Name(), folder, a})
	}
	if len(found) > 0 {
		return pick(found, only)
	}
	state := filepath.Join(dir, stateName)
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		state = checkpoints.PreviousState(state)
	}
	if _, err := os.Stat(state); err != nil {
		return nil, fmt.Errorf("want an adapter folder, a checkpoint, or the folder of a run, which has %s or %s: %w", adaptersDir, stateName, err)
	}
	return fromCheckpoint(state, state, only)
}

func fromCheckpoint(local, name, only string) ([]runAdapter, error) {
	c, err := training.ReadCheckpoint(local)
	if err != nil {
		return nil, err
	}
	var found []runAdapter
	for _, n := range c.Names() {
		a, err := c.Export(n)
		if err != nil {
			return nil, err
		}
		found = append(found, runAdapter{n, fmt.Sprintf("%s, step %d", name, c.Step()), a})
	}
	return pick(found, only)
}

// pick takes the named adapter, or all.
func pick(found []runAdapter, only string) ([]runAdapter, error) {
	if only == "" {
		return found, nil
	}
	i := slices.IndexFunc(found, func(f runAdapter) bool { return f.name == only })
	if i < 0 {
		names := make([]string, len(found))
		for i, f := range found {
			names[i] = f.name
		}
		return nil, fmt.Errorf("no adapter %q, want one of: %s", only, strings.Join(names, ", "))
	}
	return found[i : i+1], nil
}
