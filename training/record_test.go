package training

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/figures"
)

func stepLine(t *testing.T, step int) string {
	t.Helper()
	line, err := json.Marshal(StepResult{Step: step, Adapters: []AdapterResult{{Name: "a", Loss: 1 / float64(step)}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// TestRepairSteps: the log of a run that goes on holds the steps that the checkpoint knows
// of, whole lines of them, and no others.
func TestRepairSteps(t *testing.T) {
	lines := stepLine(t, 1) + stepLine(t, 2) + stepLine(t, 3)
	for name, c := range map[string]struct {
		log  string
		done int
		want string
	}{
		"as it is":          {lines, 3, lines},
		"steps done again":  {lines, 2, stepLine(t, 1) + stepLine(t, 2)},
		"a line cut short":  {lines[:len(lines)-9], 3, stepLine(t, 1) + stepLine(t, 2)},
		"a step missing":    {stepLine(t, 1) + stepLine(t, 3), 3, stepLine(t, 1) + stepLine(t, 3)},
		"begun elsewhere":   {stepLine(t, 3), 3, stepLine(t, 3)},
		"backwards":         {stepLine(t, 3) + stepLine(t, 1), 3, stepLine(t, 3)},
		"another run's log": {lines, 0, ""},
		"no log":            {"", 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), StepsName)
			if c.log != "" {
				if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			steps, log, err := repairSteps(path, c.done)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			got, err := os.ReadFile(path)
			if err != nil && c.log != "" {
				t.Fatal(err)
			}
			if string(got) != c.want || len(steps) != strings.Count(c.want, "\n") {
				t.Errorf("%d steps, file\n%swant\n%s", len(steps), got, c.want)
			}
		})
	}
}

// TestMissingSteps: what a log lacks of the steps that were done is named.
func TestMissingSteps(t *testing.T) {
	for _, c := range []struct {
		have []int
		done int
		want string
	}{
		{[]int{1, 2, 3}, 3, ""}, {nil, 0, ""}, {nil, 1, "1"}, {nil, 7, "1 to 7"}, {[]int{1, 2}, 5, "3 to 5"}, {[]int{3, 4, 6, 9}, 10, "1 to 2, 5, 7 to 8, 10"},
	} {
		var steps []StepResult
		for _, n := range c.have {
			steps = append(steps, StepResult{Step: n})
		}
		if got := strings.Join(missingSteps(steps, c.done), ", "); got != c.want {
			t.Errorf("%v of %d: %q, want %q", c.have, c.done, got, c.want)
		}
	}
}

// TestCheckStepLog: a file that is no log of a run is not cut down.
func TestCheckStepLog(t *testing.T) {
	for name, c := range map[string]struct {
		log string
		ok  bool
	}{
		"log": {stepLine(t, 1) + stepLine(t, 2), true}, "killed in the first step": {stepLine(t, 1)[:9], true}, "empty": {"", true},
		"later steps": {stepLine(t, 2), true}, "other JSON": {`{"prompt": "x"}`, false}, "text": {"Dear diary", false},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckStepLog(path); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %v", name, err, c.ok)
		}
	}
	if err := CheckStepLog(t.TempDir()); err == nil || !strings.Contains(err.Error(), "a folder, want a file") {
		t.Errorf("a folder: %v", err)
	}
	if err := CheckStepLog(filepath.Join(t.TempDir(), "missing")); err != nil {
		t.Errorf("missing: %v", err)
	}
}

// TestCurves: every adapter has its lines, skipped steps have no points, and numbers that are
// not defined are no scalars.
func TestCurves(t *testing.T) {
	quality := func(name string, loss float64, rate Number) Quality {
		return Quality{Name: name, Loss: loss, HitRate: []Number{rate}, Recall: []Number{rate}, Tau: Number(math.NaN())}
	}
	steps := []StepResult{
		{Step: 1, Adapters: []AdapterResult{{Name: "a", Loss: 3, GradNorm: 1, LearningRate: 0.1}, {Name: "b", Skipped: true}}},
		{Step: 2, Adapters: []AdapterResult{{Name: "a", Loss: 2, GradNorm: 1, LearningRate: 0.1}, {Name: "b", Loss: 5, GradNorm: 1, LearningRate: 0.1}},
			Validation: &Validation{Budgets: eviction.Budgets{eviction.Pairs(8)}, Adapters: []Quality{quality("a", 2, 0.5), quality("b", math.Inf(1), 0.4)}, SnapKV: quality("snapkv", 0, 0.3)}},
	}
	find := func(p figures.Panel, name string) *figures.Series {
		for i := range p.Lines {
			if p.Lines[i].Name == name {
				return p.Lines[i]
			}
		}
		t.Fatalf("panel %q has no line %q", p.Title, name)
		return nil
	}
	all := panels([]AdapterConfig{{Name: "a", Loss: "mse"}, {Name: "b", Loss: "kl"}}, steps)
	var titles []string
	for _, p := range all {
		titles = append(titles, p.Title)
	}
	want := []string{"KL loss (dashed: held-out samples)", "MSE loss (dashed: held-out samples)", "hit rate on held-out samples at a budget of 8 (%)",
		"norm of the gradient of the KL loss", "norm of the gradient of the MSE loss", "learning rate"}
	if !slices.Equal(titles, want) {
		t.Fatalf("panels %q, want %q", titles, want)
	}
	if n := len(find(all[1], "a").Points); n != 2 {
		t.Errorf("loss of a has %d points, want 2", n)
	}
	if n := len(find(all[0], "b").Points); n != 1 {
		t.Errorf("loss of b, which skipped a step, has %d points, want 1", n)
	}
	if len(all[0].Lines) != 2 || len(all[1].Lines) != 2 {
		t.Errorf("%d and %d lines of losses, want the loss and its validation on the axes of each", len(all[0].Lines), len(all[1].Lines))
	}
	if v := find(all[2], "SnapKV").Points; len(v) != 1 || v[0].Y != 30 {
		t.Errorf("hit rate of SnapKV: %v, want 30%%", v)
	}
	tags := make(map[string]float64)
	for _, s := range scalars(steps[1]) {
		tags[s.Tag] = s.Value
	}
	if tags["loss/b"] != 5 || tags["validation_loss/a"] != 2 || tags["validation_hit_rate_8/snapkv"] != 0.3 {
		t.Errorf("scalars %v", tags)
	}
	for tag := range tags {
		if strings.HasPrefix(tag, "validation_tau") || tag == "validation_loss/b" {
			t.Errorf("%s is not defined and yet written", tag)
		}
	}
	for _, s := range scalars(steps[0]) {
		if strings.HasSuffix(s.Tag, "/b") {
			t.Errorf("%s of a step that b skipped", s.Tag)
		}
	}
}

// TestManyCurves: of twelve adapters the ten that hit the most are in colour and named, the
// others are grey and share a name.
func TestManyCurves(t *testing.T) {
	var adapters []AdapterConfig
	step := StepResult{Step: 1, Validation: &Validation{Budgets: eviction.Budgets{eviction.Pairs(8)}, SnapKV: Quality{HitRate: []Number{0.1}}}}
	for i := range 12 {
		name := fmt.Sprint("a", i)
		adapters = append(adapters, AdapterConfig{Name: name, Loss: "kl"})
		step.Adapters = append(step.Adapters, AdapterResult{Name: name, Loss: 1, GradNorm: 1, LearningRate: 1})
		step.Validation.Adapters = append(step.Validation.Adapters, Quality{Name: name, Loss: 1, HitRate: []Number{Number(i) / 100}})
	}
	colors := make(map[int]int)
	for _, l := range panels(adapters, []StepResult{step})[1].Lines {
		colors[l.Look]++
		if grey := l.Name == "2 others"; grey != (l.Look == figures.Other) {
			t.Errorf("line %q has colour %d", l.Name, l.Look)
		}
		if grey := l.Look == figures.Other; l.Name != "SnapKV" && grey != (l.Points[0].Y < 2) {
			t.Errorf("line %q with hits of %v%% has colour %d", l.Name, l.Points, l.Look)
		}
	}
	if len(colors) != 12 || colors[figures.Other] != 2 || colors[0] != 1 {
		t.Errorf("lines by colour: %v, want ten of their own and two in grey", colors)
	}
}
