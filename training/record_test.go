package training

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
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
		"a step missing":    {stepLine(t, 1) + stepLine(t, 3), 3, stepLine(t, 1)},
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
			steps, err := repairSteps(path, c.done)
			if err != nil {
				t.Fatal(err)
			}
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

// TestCheckStepLog: a file that is no log of a run from its first step on is not cut down.
func TestCheckStepLog(t *testing.T) {
	for name, c := range map[string]struct {
		log string
		ok  bool
	}{
		"log": {stepLine(t, 1) + stepLine(t, 2), true}, "killed in the first step": {stepLine(t, 1)[:9], true}, "empty": {"", true},
		"later steps": {stepLine(t, 2), false}, "other JSON": {`{"prompt": "x"}`, false}, "text": {"Dear diary", false},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckStepLog(path); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %v", name, err, c.ok)
		}
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
	find := func(p figures.Panel, name string) *figures.Line {
		for i := range p.Lines {
			if p.Lines[i].Name == name {
				return &p.Lines[i]
			}
		}
		t.Fatalf("panel %q has no line %q", p.Title, name)
		return nil
	}
	all := panels(steps)
	if len(all) != 4 {
		t.Fatalf("%d panels, want 4", len(all))
	}
	if n := len(find(all[0], "a").Values); n != 2 {
		t.Errorf("loss of a has %d points, want 2", n)
	}
	if n := len(find(all[0], "b").Values); n != 1 {
		t.Errorf("loss of b, which skipped a step, has %d points, want 1", n)
	}
	if v := find(all[1], "SnapKV").Values; len(v) != 1 || v[0] != 0.3 {
		t.Errorf("hit rate of SnapKV: %v, want 0.3", v)
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
