package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation"
	"glimpse/internal/regularfile"
	"glimpse/internal/tempdir"
	"glimpse/internal/yamlconfig"
)

// Stored is the folder of a run as it was found, finished or not.
type Stored struct {
	Path        string       // as it was asked for
	Config      []byte       // YAML
	Environment *Environment // nil where the run has none yet
	Predictions []*evaluation.Prediction
	Timings     []evaluation.Timing
	Kept        []*evaluation.Kept
	Finished    bool
	Damage      string // what is wrong with the last of the predictions, "" where nothing is
}

// Read reads the folder of a run, or one of a bucket. What a run that is not finished has,
// or its shards have, so far is read as well. Answers are kept of the first samples of every
// task alone, as many as answers says, since they are most of a run's size.
func Read(ctx context.Context, path string, answers int, settings objectstore.Settings) (*Stored, error) {
	s := &Stored{Path: path}
	dir := path
	if objectstore.IsURL(path) {
		temp, err := tempdir.New("", "glimpse-report-")
		if err != nil {
			return nil, err
		}
		defer temp.Remove()
		if err := fetch(ctx, path, settings, temp.Path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		dir = temp.Path
	}
	if err := s.readRun(dir, answers); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// fetch gets a finished run from a bucket.
func fetch(ctx context.Context, url string, settings objectstore.Settings, dir string) error {
	store, name, err := objectstore.Open(ctx, url, settings)
	if err != nil {
		return err
	}
	for _, file := range []string{ConfigFile, EnvironmentFile, TimingsFile, KeptFile, PredictionsFile, MetricsFile} {
		err := objectstore.Download(ctx, store, objectstore.Join(name, file), filepath.Join(dir, file))
		if errors.Is(err, objectstore.ErrNotExist) {
			switch file {
			case KeptFile:
				continue
			case MetricsFile:
				return errors.New("the run is not finished; one in a bucket is read when its shards are joined")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Stored) readRun(dir string, answers int) error {
	folders, config := []string{dir}, filepath.Join(dir, ConfigFile)
	if _, err := os.Stat(config); errors.Is(err, fs.ErrNotExist) {
		shards, err := fs.Glob(os.DirFS(dir), "shard-*-of-*")
		if err != nil {
			return err
		}
		if len(shards) == 0 {
			return fmt.Errorf("no %s: not the folder of a run of evict eval --out", ConfigFile)
		}
		folders, config = nil, filepath.Join(dir, settingsFile)
		for _, shard := range shards {
			folders = append(folders, filepath.Join(dir, shard))
		}
	}
	var err error
	if s.Config, err = regularfile.Read(config, yamlconfig.MaxBytes); err != nil {
		return err
	}
	for _, f := range folders {
		if err := s.readFolder(f, answers); err != nil {
			return err
		}
	}
	s.Finished = s.Finished && folders[0] == dir // shards are finished when they are joined
	if len(s.Predictions) == 0 {
		return errors.New("no predictions yet")
	}
	return nil
}

// readFolder adds what one folder has.
func (s *Stored) readFolder(dir string, answers int) error {
	name := func(file string) string { return filepath.Join(dir, file) }
	in, file, err := openPredictions(dir)
	if err != nil || in == nil {
		return err
	}
	_, noMetrics := os.Stat(name(MetricsFile))
	s.Finished = file == PredictionsFile && noMetrics == nil
	defer in.Close()
	all, _, damage, err := evaluation.ReadPredictions(in, func(p *evaluation.Prediction) {
		if p.Index >= answers {
			p.Shorten()
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s.Predictions = append(s.Predictions, all...)
	if damage != nil {
		s.Damage = fmt.Sprintf("%s: %v", file, damage)
	}
	kept, err := readKept(name(KeptFile))
	if err != nil {
		return err
	}
	s.Kept = append(s.Kept, kept...)
	var times timingsFile
	if found, err := readVersioned(name(TimingsFile), &times, &times.Schema, timingsSchema); err != nil {
		return err
	} else if found {
		s.Timings = append(s.Timings, times.Timings...)
	}
	about := new(Environment)
	if found, err := readVersioned(name(EnvironmentFile), about, &about.Schema, environmentSchema); err != nil {
		return err
	} else if found && s.Environment == nil {
		s.Environment = about
	}
	return nil
}

// openPredictions opens the predictions of a folder by the name of their file; none where there are none.
// A run that is being extended has both files, and more in the partial one.
func openPredictions(dir string) (in *os.File, name string, err error) {
	for _, name := range []string{partialFile, PredictionsFile} {
		if in, err := regularfile.Open(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return in, name, err
		}
	}
	return nil, "", nil
}

// readVersioned reads a file, which may be missing, of one version.
func readVersioned(path string, v any, schema *string, want string) (bool, error) {
	err := regularfile.JSON(path, maxJSON, v)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if *schema != want {
		return false, fmt.Errorf("%s: schema %.100q, want %q", filepath.Base(path), *schema, want)
	}
	return true, nil
}
