package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/regularfile"
)

func open(t *testing.T, dir string) *Stored {
	t.Helper()
	s, err := Read(context.Background(), dir, 1, objectstore.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRead: a finished run, one that was stopped in a line, and shards that are not joined.
func TestRead(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if _, err := small(dir).Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if !s.Finished || s.Damage != "" || len(s.Predictions) != 45 || len(s.Kept) != 2 || s.Environment == nil || len(s.Config) == 0 {
		t.Errorf("finished: %v, %q, %d predictions, %d kept", s.Finished, s.Damage, len(s.Predictions), len(s.Kept))
	}
	for _, p := range s.Predictions {
		if (p.Index < 1) != (p.Answers != nil) {
			t.Errorf("sample %d has the answers %q, want those of the first sample alone", p.Index, p.Answers)
		}
	}
	stopped := t.TempDir()
	for name, text := range map[string]string{ConfigFile: read(t, dir, ConfigFile), partialFile: read(t, dir, PredictionsFile)[:len(read(t, dir, PredictionsFile))/2]} {
		if err := os.WriteFile(filepath.Join(stopped, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, stopped)
	if s.Finished || !strings.Contains(s.Damage, "cut off") || len(s.Predictions) == 0 || len(s.Predictions)%5 != 0 || s.Environment != nil {
		t.Errorf("stopped: %v, %q, %d predictions", s.Finished, s.Damage, len(s.Predictions))
	}
	sharded := t.TempDir()
	j := small(sharded)
	j.Shards, j.Shard = 3, "1/3"
	if _, err := j.Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	if s = open(t, sharded); s.Finished || len(s.Predictions) != 3*5 {
		t.Errorf("one of three shards: %v, %d predictions", s.Finished, len(s.Predictions))
	}
	for path, want := range map[string]string{t.TempDir(): "not the folder of a run", filepath.Join(dir, "nowhere"): "not the folder of a run"} {
		if _, err := Read(ctx, path, 1, objectstore.Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
}

// TestJoin: runs of other policies and tasks become one; what they share must be the same,
// and they must have asked the same.
func TestJoin(t *testing.T) {
	ctx := context.Background()
	run := func(change func(*Job)) *Stored {
		t.Helper()
		dir := t.TempDir()
		j := small(dir)
		j.Tasks, j.Budgets = []Task{{Task: "section"}}, []eviction.Budget{eviction.Pairs(16)}
		change(j)
		if _, err := j.Run(ctx, io.Discard); err != nil {
			t.Fatal(err)
		}
		return open(t, dir)
	}
	one := run(func(j *Job) { j.Policies = Names{"full,snapkv"} })
	two := run(func(j *Job) { j.Policies, j.Samples = Names{"full,tova"}, 2 })
	other := run(func(j *Job) { j.Policies, j.Tasks = Names{"full"}, []Task{{Task: "needle"}} })
	joined, err := Join([]*Stored{one, two, other})
	if err != nil {
		t.Fatal(err)
	}
	if len(joined.Predictions) != 3*2+2+3 || len(joined.Models) != 1 || strings.Join(joined.Tasks, " ") != "section needle" {
		t.Errorf("%d predictions of %q, %q", len(joined.Predictions), joined.Models, joined.Tasks)
	}
	refuse := func(s *Stored, want string) {
		t.Helper()
		if _, err := Join([]*Stored{one, s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	refuse(run(func(j *Job) { j.Policies, j.Seed = Names{"tova"}, 2 }), "different seed")
	refuse(run(func(j *Job) { j.Policies, j.Tasks[0].Options = Names{"tova"}, []string{"lengths=64"} }), "different options")
	weights := *two
	weights.Environment = &Environment{Models: []AboutModel{{Name: one.Environment.Models[0].Name, SHA256: "other", HashOf: one.Environment.Models[0].HashOf}}}
	refuse(&weights, "the weights are not the same")
	weights.Environment.Models[0].HashOf = "" // of an earlier version, which hashed the files
	if _, err := Join([]*Stored{one, &weights}); err != nil {
		t.Errorf("a run of an earlier version: %v", err)
	}
	changed := *two.Predictions[0]
	changed.Answers = []string{"something else"}
	result := *two
	result.Predictions = append(result.Predictions[1:2:2], &changed)
	refuse(&result, "different results")
}

// readFinished reads predictions that must be whole.
func readFinished(path string) ([]*evaluation.Prediction, error) {
	in, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all, _, damage, err := evaluation.ReadPredictions(in, nil)
	if err = errors.Join(err, damage); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}
