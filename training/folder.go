package training

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
	"glimpse/internal/suggest"
	"glimpse/internal/tempdir"
)

// Names in a run's folder.
const (
	ConfigName   = "config.yaml" // resolved configuration
	StepsName    = "steps.jsonl"
	StateName    = "state"
	CurvesName   = "curves.png"
	AdaptersName = "adapters" // folder of the finished ones
)

// CheckRunFolder is an error where something else stands in the place of a run's files.
func CheckRunFolder(dir string) error {
	for _, name := range []string{ConfigName, StepsName, StateName, checkpoints.PreviousState(StateName), CurvesName} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			return fmt.Errorf("--run %s: %s is a folder, want a file", dir, name)
		}
	}
	return nil
}

// RemoveRecords removes the records of an earlier run; the adapters are replaced one by
// one, when there are new ones.
func RemoveRecords(dir string) error {
	events, err := fs.Glob(os.DirFS(dir), "events.out.tfevents.*")
	if err != nil {
		return err
	}
	for _, name := range append(events, ConfigName, StepsName, StateName, checkpoints.PreviousState(StateName), CurvesName) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// RunAdapter is an adapter of a run, where it was found.
type RunAdapter struct {
	Name, Source string
	Adapter      *checkpoints.Adapter
}

// FindAdapters reads the adapters of a run, as users name it: an adapter folder, a
// folder of them, a run's folder with finished adapters or a state, a checkpoint, or a
// folder of uploaded ones.
func FindAdapters(ctx context.Context, name, only string, s3 objectstore.Settings) ([]RunAdapter, error) {
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
		return pick([]RunAdapter{{Name: path.Base(name), Source: name, Adapter: a}}, only)
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
		_, err := ReadCheckpoint(path)
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

func fromFolder(dir, only string) ([]RunAdapter, error) {
	if _, err := os.Stat(filepath.Join(dir, checkpoints.AdapterManifest)); err == nil {
		a, err := checkpoints.ReadAdapter(dir)
		if err != nil {
			return nil, err
		}
		return pick([]RunAdapter{{Name: filepath.Base(dir), Source: dir, Adapter: a}}, only)
	}
	entries, err := os.ReadDir(filepath.Join(dir, AdaptersName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []RunAdapter
	for _, e := range entries {
		folder := filepath.Join(dir, AdaptersName, e.Name())
		if _, err := os.Stat(filepath.Join(folder, checkpoints.AdapterManifest)); err != nil || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		a, err := checkpoints.ReadAdapter(folder)
		if err != nil {
			return nil, err
		}
		found = append(found, RunAdapter{e.Name(), folder, a})
	}
	if len(found) > 0 {
		return pick(found, only)
	}
	state := filepath.Join(dir, StateName)
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		state = checkpoints.PreviousState(state)
	}
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("want an adapter folder, a checkpoint, or the folder of a run, got a folder without %s, %s and %s: %w", checkpoints.AdapterManifest, AdaptersName, StateName, fs.ErrNotExist)
	} else if err != nil {
		return nil, err
	}
	return fromCheckpoint(state, state, only)
}

func fromCheckpoint(local, name, only string) ([]RunAdapter, error) {
	c, err := ReadCheckpoint(local)
	if err != nil {
		return nil, err
	}
	var found []RunAdapter
	for _, n := range c.Names() {
		a, err := c.Export(n)
		if err != nil {
			return nil, err
		}
		found = append(found, RunAdapter{n, fmt.Sprintf("%s, step %d", name, c.Step()), a})
	}
	return pick(found, only)
}

// pick takes the named adapter, or all.
func pick(found []RunAdapter, only string) ([]RunAdapter, error) {
	if only == "" {
		return found, nil
	}
	i := slices.IndexFunc(found, func(f RunAdapter) bool { return f.Name == only })
	if i < 0 {
		names := make([]string, len(found))
		for i, f := range found {
			names[i] = f.Name
		}
		return nil, fmt.Errorf("no adapter %q, want one of: %s%s", only, strings.Join(names, ", "), suggest.DidYouMean(only, names))
	}
	return found[i : i+1], nil
}

// Below is the name of something in a folder or an s3:// name.
func Below(folder, name string) string {
	if objectstore.IsURL(folder) {
		return strings.TrimSuffix(folder, "/") + "/" + name
	}
	return filepath.Join(folder, name)
}

// WriteAdapter writes an adapter to a folder or an s3:// name, and says so.
func WriteAdapter(ctx context.Context, target string, a *checkpoints.Adapter, replace bool, s3 objectstore.Settings, log, out io.Writer, what string) error {
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
