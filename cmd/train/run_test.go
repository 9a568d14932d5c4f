package main

import (
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/internal/cli"
	"glimpse/training"
	"glimpse/training/runs"
)

const quickRun = `# three adapters
tokens: 96
train:
  steps: 6
  batch: 4
  max_response: 8
  warmup: 2
  validation: {every: 3, samples: 4, budgets: [8, 16]}
adapters:
  - {name: all, kind: lookaheadkv, rows: 4, rank: 2, alpha: 4, learning_rate: 5e-3}
  - {name: qv, kind: lookaheadkv, rows: 4, rank: 2, alpha: 4, modules: qv, learning_rate: 5e-3}
  - {name: soft, kind: judgeq, rows: 4, learning_rate: 0.08}
`

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustExecute(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	out, log, err := execute(t, context.Background(), args...)
	if err != nil {
		t.Fatalf("train %s: %v\n%s", strings.Join(args, " "), err, log)
	}
	return out, log
}

// TestRunFolder: a run leaves its configuration, a line per step, events, curves,
// state and the adapters; the configuration that it leaves gives the same adapters
// again; and so does a run that is taken up in the middle.
func TestRunFolder(t *testing.T) {
	config := writeFile(t, "c.yaml", quickRun)
	dir := filepath.Join(t.TempDir(), "run")
	out, log := mustExecute(t, "run", config, "--run", dir)
	for _, want := range []string{"6/6 steps", "validation after step 3", "snapkv", "best so far", "hits@8"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	if !strings.Contains(out, "ms at ") || strings.Contains(out+log, "floor") {
		t.Errorf("output %q, want the time of a step and no floor, which is for -v", out)
	}
	steps := readSteps(t, filepath.Join(dir, training.StepsName))
	if len(steps) != 6 || steps[2].Validation == nil || steps[1].Validation != nil || len(steps[0].Adapters) != 3 {
		t.Fatalf("%d steps in %s", len(steps), training.StepsName)
	}
	f, err := os.Open(filepath.Join(dir, training.CurvesName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}
	if events, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*")); len(events) != 1 {
		t.Errorf("event files: %v", events)
	}
	if testing.Short() { // TestKilledRuns takes runs up
		return
	}
	// "train run config.yaml" repeats the run, without the preset of the moment.
	again := filepath.Join(t.TempDir(), "again")
	var moved []string
	for i, name := range []string{"all", "qv", "soft"} {
		moved = append(moved, "--set", "outs."+string(rune('0'+i))+"="+filepath.Join(again, "adapters", name))
	}
	mustExecute(t, append([]string{"run", filepath.Join(dir, training.ConfigName), "--run", again, "--log", "", "--checkpoint", ""}, moved...)...)
	sameAdapters(t, dir, again)

	// Taken up from a checkpoint in the middle.
	parts := filepath.Join(t.TempDir(), "parts")
	if _, _, err := execute(t, stopAfter{context.Background(), filepath.Join(parts, training.StepsName), 3}, "run", config, "--run", parts, "--checkpoint-every", "2"); err == nil {
		t.Fatal("the run was not stopped")
	}
	if n := len(readSteps(t, filepath.Join(parts, training.StepsName))); n == 6 || n == 0 {
		t.Fatalf("stopped after %d steps", n)
	}
	mustExecute(t, "run", config, "--run", parts, "--checkpoint-every", "2", "--resume")
	if n := len(readSteps(t, filepath.Join(parts, training.StepsName))); n != 6 {
		t.Errorf("%d lines after taking up, want one per step", n)
	}
	sameAdapters(t, dir, parts)
}

// stopAfter is a context that ends when a step log has so many lines.
type stopAfter struct {
	context.Context
	log   string
	steps int
}

func (c stopAfter) Err() error {
	if data, err := os.ReadFile(c.log); err == nil && strings.Count(string(data), "\n") >= c.steps {
		return context.Canceled
	}
	return nil
}

func readSteps(t *testing.T, path string) []training.StepResult {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []training.StepResult
	for line := range strings.Lines(string(data)) {
		var s training.StepResult
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if s.Step != len(out)+1 {
			t.Fatalf("%s: step %d after %d", path, s.Step, len(out))
		}
		out = append(out, s)
	}
	return out
}

func sameAdapters(t *testing.T, a, b string) {
	t.Helper()
	for _, name := range []string{"all", "qv", "soft"} {
		x, y := files(t, filepath.Join(a, "adapters", name)), files(t, filepath.Join(b, "adapters", name))
		if len(x) < 2 {
			t.Fatalf("adapter %s has %d files", name, len(x))
		}
		for file, data := range x {
			if y[file] != data {
				t.Errorf("adapter %s: %s differs", name, file)
			}
		}
	}
}

// TestPresetAndOverrides: preset, file, flags and --set, each over the one before.
func TestPresetAndOverrides(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		flags []string
		check func(s *runs.Spec) bool
	}{
		"preset alone": {"preset: lookaheadkv", nil, func(s *runs.Spec) bool {
			return s.Train.Steps == 7600 && s.Train.Beta2 == 0.95 && len(s.Adapters) == 1 && s.Adapters[0].Rank == 8 && len(s.Adapters[0].Modules) == 7
		}},
		"file over preset": {"preset: lookaheadkv\ntrain: {steps: 5, clip: 2}", nil, func(s *runs.Spec) bool { return s.Train.Steps == 5 && s.Train.Clip == 2 && s.Train.Batch == 32 }},
		"flag over file":   {"preset: lookaheadkv\ntrain: {steps: 5}", []string{"--steps", "9", "--data", "a,b"}, func(s *runs.Spec) bool { return s.Train.Steps == 9 && len(s.Data) == 2 }},
		"set over file":    {"train: {steps: 5}\nadapters: [{kind: judgeq}]", []string{"--set", "adapters.0.rows=3"}, func(s *runs.Spec) bool { return s.Adapters[0].Rows == 3 }},
		"preset by flag":   {"train: {batch: 5}", []string{"--preset", "judgeq"}, func(s *runs.Spec) bool { return s.Train.Batch == 5 && s.Train.Beta2 == 0.999 && s.Epochs == 3 }},
		"steps over epochs": {"preset: judgeq", []string{"--steps", "7"}, func(s *runs.Spec) bool {
			return s.Train.Steps == 7 && s.Epochs == 0
		}},
		"modules": {"adapters: [{kind: lookaheadkv, modules: none}, {kind: lookaheadkv, modules: [q_proj, up_proj]}, {kind: lookaheadkv, modules: \"q,v\"}]", nil, func(s *runs.Spec) bool {
			return len(s.Adapters[0].Modules) == 0 && s.Adapters[0].Config().Rank == 0 && s.Adapters[1].Modules[1] == "up_proj" && len(s.Adapters[2].Modules) == 2
		}},
		"old form":   {`{"train": {"adapters": [{"kind": "judgeq", "init_token": 6}]}}`, nil, func(s *runs.Spec) bool { return len(s.Adapters) == 1 && s.Adapters[0].InitToken == 6 }},
		"zero steps": {"train: {steps: 0}", nil, func(s *runs.Spec) bool { return s.Train.Steps == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := runs.Default()
			cmd := newRun()
			cmd.ResetFlags()
			bindSpec(cmd.Flags(), s)
			bindSet(cmd.Flags(), s)
			if err := cmd.ParseFlags(c.flags); err != nil {
				t.Fatal(err)
			}
			if err := s.Read(writeFile(t, "c.yaml", c.file), cli.GivenFlags(cmd.Flags())); err != nil {
				t.Fatal(err)
			}
			if !c.check(s) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestRunFileErrors(t *testing.T) {
	adapter := "adapters: [{kind: judgeq, learning_rate: 0.1}]\n"
	for name, c := range map[string]struct{ file, want string }{
		"preset":         {"preset: lookaheadvk", `unknown preset "lookaheadvk"`},
		"key":            {"stesp: 3", `c.yaml:1: unknown key "stesp"`},
		"validation key": {"train:\n  validation:\n    evry: 3\n", `c.yaml:3: train.validation: unknown key "evry", did you mean "every"?`},
		"module":         {"adapters: [{kind: lookaheadkv, modules: \"q,w\"}]", `unknown module "w"`},
		"init token":     {"adapters: [{kind: judgeq, init_token: start}]", `got "start", want a token id`},
		"both lists":     {adapter + "train: {adapters: [{kind: judgeq}]}", "got both"},
		"two places":     {"outs: [x]\nadapters: [{kind: judgeq, out: y}]", "want them in one place"},
		"no folder":      {adapter, "got 0 folders for 1 adapters"},
		"no rate":        {"outs: [x]\nadapters: [{kind: judgeq}]", "learning rate: got 0"},
		"epochs":         {"outs: [x]\nepochs: 3\n" + adapter, "epochs: got 3, but synthetic prompts have no end"},
		"patience":       {"outs: [x]\ntrain: {validation: {patience: 2}}\n" + adapter, "patience 2 without validations"},
		"budgets":        {"outs: [x]\ntrain: {validation: {budgets: [8, 8]}}\n" + adapter, "budgets: got [8 8]"},
		"zero steps":     {"outs: [x]\ntrain: {steps: 0}\n" + adapter, "steps: got 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("c.yaml", []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			_, _, err := execute(t, context.Background(), "run", "c.yaml")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want it to say %q", err, c.want)
			}
			if left := files(t, "."); len(left) != 1 {
				t.Errorf("left behind: %d files", len(left))
			}
		})
	}
}

// TestSweepIsBounded: a grid that no run could train is refused at once.
func TestSweepIsBounded(t *testing.T) {
	var rows, rates strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&rows, "%d, ", i+1)
		fmt.Fprintf(&rates, "%g, ", float64(i+1)/1000)
	}
	file := writeFile(t, "sweep.yaml", "run: "+t.TempDir()+"/s\nadapters: [{kind: judgeq}]\nsweep: {rows: ["+rows.String()+"], learning_rate: ["+rates.String()+"]}\n")
	begin := time.Now()
	wantRefused(t, "a grid of 1000000 points, want at most 10000", "sweep", file)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("refused after %v", took)
	}
}
