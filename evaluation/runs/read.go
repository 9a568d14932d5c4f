package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation"
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
	s, f := &Stored{Path: path}, &folder{path: path}
	err := f.open(ctx, settings)
	if err == nil {
		s.Config, err = f.readConfig(ctx)
	}
	if err == nil && s.Config == nil {
		err = fmt.Errorf("no %s: not the folder of a run of evict eval --out", ConfigFile)
	}
	shards := 0
	if err == nil && !objectstore.IsURL(path) {
		shards = shardsIn(path)
	}
	if err == nil {
		err = errors.Join(s.read(ctx, f, answers, shards), s.readAbout(ctx, f, shards))
	}
	if err == nil && len(s.Predictions) == 0 {
		err = errors.New("no predictions yet")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// shardsIn is how many shards earlier versions have divided the run of a folder into, 0 for none.
func shardsIn(dir string) (n int) {
	found, _ := fs.Glob(os.DirFS(dir), "shard-*-of-*") // the pattern is well-formed
	for _, name := range found {
		if i, all := 0, 0; n == 0 {
			if _, err := fmt.Sscanf(name, "shard-%d-of-%d", &i, &all); err == nil {
				n = all
			}
		}
	}
	return n
}

// shardName names the folder of a shard.
func shardName(i, n int) string { return fmt.Sprintf("shard-%05d-of-%05d", i, n) }

// read reads what there is of a run. It looks in its folder, in the shards of earlier versions, and among the results of
// samples. Of a sample that is there twice, a result wins, and else the first.
func (s *Stored) read(ctx context.Context, f *folder, answers, shards int) error {
	place := make(map[evaluation.SampleKey]bool)
	finished, err := s.readFolder(ctx, f, "", answers, place)
	for i := range shards {
		if err == nil {
			_, err = s.readFolder(ctx, f, shardName(i, shards)+"/", answers, place)
		}
	}
	if err != nil {
		return err
	}
	var results []*evaluation.Prediction
	again := make(map[evaluation.SampleKey]bool)
	err = f.work.Results(ctx, func(name string, text []byte) error {
		if strings.HasPrefix(name, timesPrefix) {
			var more []evaluation.Timing
			if err := json.Unmarshal(text, &more); err == nil {
				s.Timings = append(s.Timings, more...)
			}
			return nil
		}
		r, err := evaluation.ReadResult(text)
		if err != nil {
			return nil // a crash has damaged it: it is measured again
		}
		again[r.Lines[0].Key()] = true
		for _, p := range r.Lines {
			if p.Index >= answers {
				p.Shorten()
			}
		}
		if results = append(results, r.Lines...); r.Kept != nil {
			s.Kept = append(s.Kept, r.Kept)
		}
		return nil
	})
	s.Finished = finished && len(results) == 0
	s.Predictions = append(slices.DeleteFunc(s.Predictions, func(p *evaluation.Prediction) bool { return again[p.Key()] }), results...)
	s.Kept = joinKept(s.Kept)
	return err
}

// readAbout reads what is known of the models of a run: of shards of earlier versions, of the first that has it.
func (s *Stored) readAbout(ctx context.Context, f *folder, shards int) error {
	for i := -1; i < shards && s.Environment == nil; i++ {
		about, name := new(Environment), EnvironmentFile
		if i >= 0 {
			name = shardName(i, shards) + "/" + name
		}
		if found, err := f.readVersioned(ctx, name, about, &about.Schema, environmentSchema); err != nil {
			return err
		} else if found {
			s.Environment = about
		}
	}
	return nil
}

// readFolder adds what one folder has of samples that are not there.
func (s *Stored) readFolder(ctx context.Context, f *folder, folder string, answers int, seen map[evaluation.SampleKey]bool) (finished bool, err error) {
	metrics, err := f.readFile(ctx, folder+MetricsFile)
	if err != nil {
		return false, err
	}
	for _, name := range []string{partialFile, PredictionsFile} { // a run that an earlier version was extending has both, and more in the partial one
		text, err := f.readFile(ctx, folder+name)
		if err != nil {
			return false, err
		}
		if text == nil {
			continue
		}
		all, _, damage, err := evaluation.ReadPredictions(bytes.NewReader(text), func(p *evaluation.Prediction) {
			if p.Index >= answers {
				p.Shorten()
			}
		})
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		own := make(map[evaluation.SampleKey]bool)
		for _, p := range all {
			if !seen[p.Key()] {
				own[p.Key()], s.Predictions = true, append(s.Predictions, p)
			}
		}
		maps.Copy(seen, own)
		if damage != nil {
			s.Damage = fmt.Sprintf("%s: %v", folder+name, damage)
		}
		finished = name == PredictionsFile && metrics != nil
		break
	}
	kept, err := f.readFile(ctx, folder+KeptFile)
	if err != nil {
		return false, err
	}
	s.Kept = append(s.Kept, decodeKept(kept)...)
	var times timingsFile
	if found, err := f.readVersioned(ctx, folder+TimingsFile, &times, &times.Schema, timingsSchema); err != nil {
		return false, err
	} else if found {
		s.Timings = append(s.Timings, times.Timings...)
	}
	return finished, nil
}

// readVersioned reads a file, which may be missing, of one version.
func (f *folder) readVersioned(ctx context.Context, name string, v any, schema *string, want string) (bool, error) {
	text, err := f.readFile(ctx, name)
	if err != nil || text == nil {
		return false, err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if *schema != want {
		return false, fmt.Errorf("%s: schema %.100q, want %q", path.Base(name), *schema, want)
	}
	return true, nil
}
