package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"
)

// small is a run of three steps of the built-in model, with two adapters in the folder.
func small(folder string) *Spec {
	s := Default()
	s.RunDir, s.Tokens, s.Workers, s.CheckpointEvery = folder, 64, 1, 2
	s.Train.Steps, s.Train.Batch, s.Train.MaxResponse, s.Train.Warmup = 3, 1, 4, 0
	s.Train.Validation.Samples, s.Train.Validation.Every = 1, 0
	for i, kind := range []string{"lookaheadkv", "judgeq"} {
		a := Adapter{}
		a.Defaults(func(string) string { return kind })
		a.Rows, a.LearningRate, a.Seed = 2, 0.01, uint64(i)
		if a.Rank > 0 {
			a.Rank, a.Alpha, a.Modules = 1, 1, ModuleList{model.QProj}
		}
		s.Adapters = append(s.Adapters, a)
	}
	return s
}

func (s *Spec) started(t *testing.T, ctx context.Context) error {
	t.Helper()
	s.Outs = nil
	if err := s.Folders("c.yaml"); err != nil {
		t.Fatal(err)
	}
	return s.Run(ctx, io.Discard, io.Discard)
}

// lines is the number of steps that the log of a run has.
func lines(folder string) int {
	data, _ := os.ReadFile(filepath.Join(folder, training.StepsName))
	return bytes.Count(data, []byte("\n"))
}

// endsAfter is a context that is cancelled once the log of a run has so many steps.
type endsAfter struct {
	context.Context
	folder string
	steps  int
}

func (c endsAfter) Err() error {
	if lines(c.folder) >= c.steps {
		return context.Canceled
	}
	return nil
}

// TestRun: what a run leaves in its folder, what of it a second run with the same settings
// makes again, and that one that was stopped between two checkpoints ends with the same
// adapters.
func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	s := small(dir)
	if err := s.started(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := lines(dir); n != 3 {
		t.Errorf("the log has %d steps, want 3", n)
	}
	for i, kind := range []string{"lookaheadkv", "judgeq"} {
		if v, ok := s.metrics[i]["validation_loss"]; !ok || !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%s: held-out loss %v of %v", kind, v, s.metrics[i])
		}
	}
	if slices.Min(s.sizes) < 2*64 {
		t.Errorf("adapters of %v numbers", s.sizes)
	}

	// The configuration that was written is that of the run.
	again := Default()
	if err := again.Read(filepath.Join(dir, training.ConfigName), commandLine{}); err != nil {
		t.Fatal(err)
	}
	if again.RunDir != dir || again.Train.Steps != 3 || again.Tokens != 64 || len(again.Adapters) != 2 ||
		again.Adapters[0].Pooling != 1 || !slices.Equal(again.Adapters[0].Modules, ModuleList{model.QProj}) || again.Adapters[1].Loss != "mse" {
		t.Errorf("read back: %+v", again)
	}

	// In its folder a run must be asked to replace it or to go on.
	if err := small(dir).started(t, t.Context()); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second run in the folder: %v", err)
	}
	parts := small(filepath.Join(t.TempDir(), "parts"))
	err := parts.started(t, endsAfter{t.Context(), parts.RunDir, 1})
	if err == nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the same command with --resume goes on") {
		t.Fatalf("a run that was stopped: %v", err)
	}
	if n := lines(parts.RunDir); n == 0 || n == 3 {
		t.Fatalf("stopped after %d steps", n)
	}
	parts.Resume = true
	if err := parts.started(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range s.Outs {
		want, got := modeltest.Files(t, s.Outs[i]), modeltest.Files(t, parts.Outs[i])
		if len(want) < 2 || len(got) != len(want) {
			t.Fatalf("adapter %d: %d files, want %d", i, len(got), len(want))
		}
		for name, data := range want {
			if !bytes.Equal(got[name], data) {
				t.Errorf("adapter %d: %s differs after a stop", i, name)
			}
		}
	}

	// One that has ended writes the same once more, which changes nothing, and whatever
	// else is in the adapter's folder keeps it from being replaced.
	if err := parts.started(t, t.Context()); err != nil {
		t.Errorf("a run that has ended goes on: %v", err)
	}
	if err := os.WriteFile(filepath.Join(parts.Outs[0], "notes"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	parts.Resume, parts.Replace = false, true
	if err := parts.started(t, t.Context()); err == nil || !strings.Contains(err.Error(), "notes") {
		t.Errorf("a folder with other files was replaced: %v", err)
	}
}

// TestSweep: every point is trained, in passes, and the best held-out loss comes first.
func TestSweep(t *testing.T) {
	s := small(filepath.Join(t.TempDir(), "sweep"))
	s.Adapters, s.Train.Steps = s.Adapters[1:], 2
	s.Sweep = &Grid{LearningRate: []float64{1e-9, 0.05, 0.01}, PerPass: 2}
	rows, err := s.RunSweep(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || !slices.IsSortedFunc(rows, func(a, b Row) int {
		return int(math.Copysign(1, a.Metrics["validation_loss"]-b.Metrics["validation_loss"]))
	}) {
		t.Fatalf("%+v", rows)
	}
	data, err := os.ReadFile(filepath.Join(s.RunDir, "sweep.json"))
	if err != nil {
		t.Fatal(err)
	}
	var stored []Row
	if err := json.Unmarshal(data, &stored); err != nil || fmt.Sprint(stored) != fmt.Sprint(rows) {
		t.Errorf("sweep.json holds %s (%v)", data, err)
	}
	for _, r := range rows {
		pass := 1
		if r.LearningRate == 0.01 {
			pass = 2
		}
		if want := filepath.Join(s.RunDir, fmt.Sprint("pass-", pass), "adapters", r.Name); r.Folder != want {
			t.Errorf("%s is in %s, want %s", r.Name, r.Folder, want)
		}
		if a, err := checkpoints.ReadAdapter(r.Folder); err != nil || a == nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
	var table bytes.Buffer
	if err := WriteRows(&table, rows, eviction.Budgets{eviction.Pairs(32)}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimRight(table.String(), "\n"), "\n"); len(got) != 5 || !strings.Contains(got[0], "hits@32") || !strings.Contains(got[4], "SnapKV") {
		t.Errorf("table:\n%s", table.String())
	}
}

// TestCheckpointSettings: what cannot be kept or taken up is an error before the first
// step.
func TestCheckpointSettings(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec  Spec
		fails string
	}{
		"none":               {spec: Spec{CheckpointEvery: 1}},
		"resume from none":   {spec: Spec{CheckpointEvery: 1, Resume: true}, fails: "--resume needs --checkpoint"},
		"upload of none":     {spec: Spec{CheckpointEvery: 1, Upload: dir}, fails: "--upload needs --checkpoint"},
		"every 0":            {spec: Spec{Checkpoint: filepath.Join(dir, "a")}, fails: "got 0, want at least 1"},
		"exists":             {spec: Spec{Checkpoint: taken, CheckpointEvery: 1}, fails: "exists: go on from it with --resume"},
		"upload to nowhere":  {spec: Spec{Checkpoint: filepath.Join(dir, "b"), CheckpointEvery: 1, Upload: "s3://"}, fails: "--upload"},
		"below a file":       {spec: Spec{Checkpoint: filepath.Join(taken, "x"), CheckpointEvery: 1}, fails: "folder of the checkpoint"},
		"previous is around": {spec: Spec{Checkpoint: filepath.Join(dir, "c"), CheckpointEvery: 1}, fails: "exists: go on"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "previous is around" {
				if err := os.WriteFile(checkpoints.PreviousState(c.spec.Checkpoint), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k, err := c.spec.openCheckpoint(t.Context(), nil, "", io.Discard)
			if c.fails == "" {
				if err != nil || k.due(training.StepResult{Step: 1}, 1) {
					t.Errorf("without a checkpoint: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("error %v, want it to say %q", err, c.fails)
			}
			// What was refused holds no lock.
			if name == "exists" {
				first := &checkpointer{path: taken}
				if err := first.lock(); err != nil {
					t.Errorf("after a refusal: %v", err)
				}
				if err := (&checkpointer{path: taken}).lock(); err == nil {
					t.Error("two runs have one checkpoint")
				}
				first.waitUploads(t.Context())
				if err := (&checkpointer{path: taken}).lock(); err != nil {
					t.Errorf("after it was closed: %v", err)
				}
			}
		})
	}
	if data, err := os.ReadFile(taken); err != nil || string(data) != "years of work" {
		t.Errorf("the file that was there holds %q (%v)", data, err)
	}
}

// TestDue: a checkpoint follows every so many steps, the last one and one that ends the
// run.
func TestDue(t *testing.T) {
	k := &checkpointer{path: "x", every: 4}
	for _, c := range []struct {
		step    int
		stopped bool
		want    bool
	}{{step: 1}, {step: 4, want: true}, {step: 8, want: true}, {step: 9}, {step: 10, want: true}, {step: 9, stopped: true, want: true}} {
		if got := k.due(training.StepResult{Step: c.step, Stopped: c.stopped}, 10); got != c.want {
			t.Errorf("step %d, stopped %v: %v, want %v", c.step, c.stopped, got, c.want)
		}
	}
}

// TestSources: of pairs one in ten at most is held out unless there are others for that,
// never one that is trained on, and always the same ones.
func TestSources(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	hash, err := m.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, hash string, from, n int) string {
		path := filepath.Join(dir, name)
		w, err := datasets.CreatePairs(path, datasets.PairHeader{Model: m.Name, WeightsSHA256: hash, Sampling: datasets.Sampling{TopP: 1, MaxNewTokens: 4}, Shards: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < from+n; i++ {
			if err := w.Write(datasets.Pair{ID: fmt.Sprint(i), PromptIDs: []int32{1, int32(i)}, ResponseIDs: []int32{2}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	thirty, nine, others := file("thirty", hash, 0, 30), file("nine", hash, 0, 9), file("others", hash, 100, 3)
	foreign := file("foreign", strings.Repeat("0", 64), 0, 30)
	for name, c := range map[string]struct {
		data, held    string
		samples       int
		every         int
		trained, kept int
		fails         string
	}{
		"one in ten":     {data: thirty, samples: 64, trained: 27, kept: 3},
		"fewer":          {data: thirty, samples: 2, trained: 28, kept: 2},
		"none":           {data: thirty, trained: 30},
		"of their own":   {data: thirty, held: others, samples: 64, trained: 30, kept: 3},
		"too few":        {data: nine, samples: 64, trained: 9},
		"and validated":  {data: nine, samples: 64, every: 1, fails: "want at least 10, or --held-out"},
		"without data":   {held: others, fails: "--held-out needs --data"},
		"of other model": {data: foreign, fails: "want those of glimpse-reference"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Default()
			s.Train.Validation.Samples, s.Train.Validation.Every = c.samples, c.every
			for list, path := range map[*TextList]string{&s.Data: c.data, &s.HeldOut: c.held} {
				if path != "" {
					*list = TextList{path}
				}
			}
			source, held, _, err := s.sources(t.Context(), m, io.Discard)
			if c.fails != "" {
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.fails)) {
					t.Fatalf("error %v, want it to say %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ids := make(map[string]int)
			for _, p := range source.(*training.Pairs).Pairs {
				ids[p.ID]++
			}
			if len(ids) != c.trained || (held == nil) != (c.kept == 0) || s.Train.Validation.Samples != c.kept {
				t.Fatalf("%d are trained on and %d held out, want %d and %d", len(ids), s.Train.Validation.Samples, c.trained, c.kept)
			}
			if held == nil {
				return
			}
			for _, p := range held.(*training.Pairs).Pairs {
				if ids[p.ID]++; ids[p.ID] > 1 {
					t.Errorf("pair %s is trained on and held out", p.ID)
				}
			}
			if len(ids) != c.trained+c.kept {
				t.Errorf("%d pairs in all, want %d", len(ids), c.trained+c.kept)
			}
		})
	}
}

// TestLengths: how long the samples of a plan are comes from the pairs, from the preset, or
// is asked for.
func TestLengths(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for name, c := range map[string]struct {
		change           func(s *Spec)
		prompt, response int
		want             training.PlanOptions
		fails            string
	}{
		"synthetic": {want: training.PlanOptions{Prompt: 512, Response: 16, Generated: true}},
		"asked for": {prompt: 99, response: 7, want: training.PlanOptions{Prompt: 99, Response: 7, Generated: true}},
		"at most":   {response: 9999, want: training.PlanOptions{Prompt: 512, Response: Default().Train.MaxResponse, Generated: true}},
		"preset": {change: func(s *Spec) {
			s.Model = "x"
			if err := s.usePreset("judgeq"); err != nil {
				t.Fatal(err)
			}
		}, want: training.PlanOptions{Prompt: must(training.Presets.Lookup("judgeq")).MaxPrompt, Response: 512}},
		"unknown":  {change: func(s *Spec) { s.Model = "x" }, fails: "no data, want --prompt-tokens"},
		"negative": {change: func(s *Spec) { s.Tokens = -1 }, fails: "prompt tokens: got -1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Default()
			if c.change != nil {
				c.change(s)
			}
			_, got, err := s.Plan(t.Context(), m, c.prompt, c.response, io.Discard)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want it to say %q", err, c.fails)
				}
			} else if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%+v (%v), want %+v", got, err, c.want)
			}
		})
	}
}

// endsAt is a context that ends once a file is there.
type endsAt struct {
	context.Context
	file string
}

func (c endsAt) Err() error {
	if _, err := os.Stat(c.file); err == nil {
		return context.Canceled
	}
	return nil
}

// TestStoppedAfterTheAdapter: a signal while a step is timed leaves a run that is complete, and says so;
// one before leaves a run to go on with.
func TestStoppedAfterTheAdapter(t *testing.T) {
	for _, c := range []struct {
		name     string
		file     func(s *Spec) string
		complete bool
	}{
		{"last adapter", func(s *Spec) string { return filepath.Join(s.Outs[1], "glimpse.json") }, true},
		{"checkpoint", func(s *Spec) string { return filepath.Join(s.RunDir, training.StateName) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := small(filepath.Join(t.TempDir(), "run"))
			if err := s.Folders("c.yaml"); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			err := s.Run(endsAt{t.Context(), c.file(s)}, &log, io.Discard)
			if (err == nil) != c.complete || err != nil && !strings.Contains(err.Error(), "goes on") {
				t.Fatalf("error %v, log %s", err, log.String())
			}
			if said := strings.Contains(log.String(), "training is complete, and its adapters are written"); said != c.complete {
				t.Errorf("complete: said %t, want %t: %s", said, c.complete, log.String())
			}
			if c.complete && !strings.Contains(log.String(), "timing a step of ") {
				t.Errorf("the timing was not announced: %s", log.String())
			}
		})
	}
}
