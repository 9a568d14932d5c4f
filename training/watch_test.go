package training_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/training"
)

// TestNonFiniteStepsAreSkipped poisons one of two adapters for a step: it skips that
// step, names the sample, and the other one keeps its bits.
func TestNonFiniteStepsAreSkipped(t *testing.T) {
	m := shallow(t)
	apart := both(5)
	apart.Adapters = apart.Adapters[1:]
	want, _ := run(t, m, apart, pairs(t, m, 5, 64))

	tr, err := training.New(m, both(5), pairs(t, m, 5, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	rows := tr.Adapter(0).Parameters()[0].Tensor.F32()
	var before float32
	err = tr.Run(context.Background(), func(r training.StepResult) error {
		switch r.Step {
		case 2:
			before, rows[3] = rows[3], float32(math.NaN())
		case 3:
			first, err := pairs(t, m, 5, 64).At(2 * 4)
			if err != nil {
				return err
			}
			if len(r.NonFinite) != 1 || r.NonFinite[0].Adapter != "lookaheadkv" || r.NonFinite[0].Sample != first.ID || r.NonFinite[0].What != "loss is NaN" {
				t.Errorf("step 3 reports %v, want lookaheadkv at sample %s", r.NonFinite, first.ID)
			}
			if !r.Adapters[0].Skipped || r.Adapters[1].Skipped {
				t.Errorf("skipped: %v and %v, want the first only", r.Adapters[0].Skipped, r.Adapters[1].Skipped)
			}
			rows[3] = before
		default:
			if len(r.NonFinite) > 0 {
				t.Errorf("step %d reports %v", r.Step, r.NonFinite)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := tr.Adapter(1).Parameters()[0].Tensor.Float32s(); !sameBits(got, want) {
		t.Error("the other adapter has other bits than one trained alone")
	}
}

// TestThreeNonFiniteStepsStop: the run ends, names the sample, and its state can be
// saved and taken up.
func TestThreeNonFiniteStepsStop(t *testing.T) {
	m := shallow(t)
	tr, err := training.New(m, both(9), pairs(t, m, 5, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	steps := 0
	err = tr.Run(context.Background(), func(r training.StepResult) error {
		if steps = r.Step; steps == 2 {
			tr.Adapter(1).Parameters()[0].Tensor.F32()[0] = float32(math.Inf(1))
		}
		return nil
	})
	if !errors.Is(err, training.ErrNonFinite) || steps != 5 || !strings.Contains(err.Error(), "adapter judgeq: loss is NaN at sample ") {
		t.Fatalf("error %v after step %d, want ErrNonFinite of judgeq after 5", err, steps)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := tr.Save(path, "hash"); err != nil {
		t.Fatal(err)
	}
	again, err := training.New(m, both(9), pairs(t, m, 5, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Resume(path, "hash"); err != nil || again.Done() != 5 {
		t.Fatalf("resume: %v, after %d steps", err, again.Done())
	}
	if err := again.Run(context.Background(), nil); !errors.Is(err, training.ErrNonFinite) || again.Done() != 6 {
		t.Errorf("taken up: %v after step %d, want ErrNonFinite at once: the count is part of the state", err, again.Done())
	}
}

// watched is a run with validations every 2 steps.
func watched(t *testing.T, m *model.Model, c training.Config) *training.Trainer {
	t.Helper()
	budgets, err := eviction.ParseBudgets("8,16,1000,20%")
	if err != nil {
		t.Fatal(err)
	}
	c.Validation = training.ValidationConfig{Every: 2, Samples: 5, Budgets: budgets, Patience: c.Validation.Patience}
	tr, err := training.New(m, c, pairs(t, m, 6, 96))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	held := stream(t, 80)
	if err := tr.HoldOut(context.Background(), held); err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestValidation: numbers are in range and repeatable, a budget that every prompt fits
// is no measurement, and training makes the adapter better than it was.
func TestValidation(t *testing.T) {
	m := reference(t)
	if testing.Short() {
		m = shallow(t)
	}
	c := both(24)
	var seen []*training.Validation
	tr := watched(t, m, c)
	start, err := tr.Validate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = tr.Run(context.Background(), func(r training.StepResult) error {
		if r.Validation != nil {
			seen = append(seen, r.Validation)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 12 || seen[0].Step != 2 || seen[11].Step != 24 {
		t.Fatalf("%d validations", len(seen))
	}
	last := seen[11]
	for _, q := range append([]training.Quality{last.SnapKV}, last.Adapters...) {
		for b := range 2 {
			if !(q.HitRate[b] > 0 && q.HitRate[b] <= 1 && q.Recall[b] > 0 && q.Recall[b] <= 1) {
				t.Errorf("%s: hit rate %v, recall %v at budget %v", q.Name, q.HitRate[b], q.Recall[b], last.Budgets[b])
			}
		}
		if q.HitRate[3] != q.HitRate[1] || q.Recall[3] != q.Recall[1] { // of prompts of 80 tokens
			t.Errorf("%s: hit rate %v, recall %v at 20%%, %v and %v at 16", q.Name, q.HitRate[3], q.Recall[3], q.HitRate[1], q.Recall[1])
		}
		if q.HitRate[2] == q.HitRate[2] || q.Recall[2] == q.Recall[2] {
			t.Errorf("%s: hit rate %v at a budget beyond the prompts, want none", q.Name, q.HitRate[2])
		}
		if !(q.Tau > -1 && q.Tau < 1) {
			t.Errorf("%s: τ %v", q.Name, q.Tau)
		}
	}
	if last.SnapKV.HitRate[0] != start.SnapKV.HitRate[0] || last.SnapKV.Tau != start.SnapKV.Tau {
		t.Error("SnapKV's numbers have changed between validations")
	}
	if got, was := last.Adapters[0], start.Adapters[0]; !(got.Loss < was.Loss && (got.HitRate[1] > was.HitRate[1] || testing.Short())) {
		t.Errorf("lookaheadkv: loss %v → %v, hit rate %v → %v: want both better", was.Loss, got.Loss, was.HitRate[1], got.HitRate[1])
	}
	// The best parameters are those of the best validation.
	best := 0
	for i, v := range seen {
		if v.Adapters[0].Loss < seen[best].Adapters[0].Loss {
			best = i
		}
	}
	if got := tr.Best(0); got.Step != seen[best].Step || got.Loss != seen[best].Adapters[0].Loss || !seen[best].Adapters[0].Best {
		t.Errorf("best %+v, want that of step %d", got, seen[best].Step)
	}
	tr.RestoreBest()
	again, err := tr.Validate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if again.Adapters[0].Loss != seen[best].Adapters[0].Loss {
		t.Errorf("loss of the best parameters is %v, was %v", again.Adapters[0].Loss, seen[best].Adapters[0].Loss)
	}
}

// TestEarlyStopping: a rate too small to change anything ends the run after the first
// validation and patience more.
func TestEarlyStopping(t *testing.T) {
	m := shallow(t)
	c := both(1000)
	for i := range c.Adapters {
		c.Adapters[i].LearningRate = 1e-30
	}
	c.Validation.Patience = 3
	tr := watched(t, m, c)
	stopped := false
	if err := tr.Run(context.Background(), func(r training.StepResult) error { stopped = r.Stopped; return nil }); err != nil {
		t.Fatal(err)
	}
	if tr.Done() != 8 || !stopped {
		t.Fatalf("stopped after step %d (%v), want 8", tr.Done(), stopped)
	}
	if err := tr.Run(context.Background(), nil); err != nil || tr.Done() != 8 {
		t.Errorf("a run that has stopped goes on to step %d (%v)", tr.Done(), err)
	}
}

// TestResumeKeepsTheBest: parameters, best parameters and history of a resumed run are
// those of one that was never stopped.
func TestResumeKeepsTheBest(t *testing.T) {
	m := shallow(t)
	c := both(8)
	whole := watched(t, m, c)
	if err := whole.Run(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	first := watched(t, m, c)
	enough := errors.New("enough")
	if err := first.Run(context.Background(), func(r training.StepResult) error {
		if r.Step < 5 {
			return nil
		}
		return errors.Join(first.Save(path, "hash"), enough)
	}); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	second := watched(t, m, c)
	if err := second.Resume(path, "hash"); err != nil {
		t.Fatal(err)
	}
	if err := second.Run(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	whole.RestoreBest()
	second.RestoreBest()
	for i := range 2 {
		if whole.Best(i) != second.Best(i) {
			t.Errorf("adapter %d: best %+v, want %+v", i, second.Best(i), whole.Best(i))
		}
		for j, p := range whole.Adapter(i).Parameters() {
			if !sameBits(p.Tensor.F32(), second.Adapter(i).Parameters()[j].Tensor.F32()) {
				t.Fatalf("adapter %d %s: the best parameters differ", i, p.Name)
			}
		}
	}
}

func TestPresets(t *testing.T) {
	l, err := training.Presets.Lookup("lookaheadkv")
	if err != nil {
		t.Fatal(err)
	}
	// LookaheadKV, arXiv:2603.10899, table 16.
	c := l.Config
	if c.Steps != 7600 || c.Batch != 32 || c.Beta1 != 0.9 || c.Beta2 != 0.95 || c.Schedule != "cosine" || c.Warmup != 0 || c.WarmupRatio != 0.02 ||
		l.Adapter.InitToken != -1 ||
		c.FinalRatio != 0 || c.Clip != 1 || c.WeightDecay != 0 || c.MaxResponse != 512 || l.MaxPrompt != 16384 ||
		l.Rate("LlamaForCausalLM") != 1e-3 || l.Rate("Qwen3ForCausalLM") != 2e-4 || l.Adapter.Rows != 32 || l.Adapter.Rank != 8 || l.Adapter.Alpha != 32 || len(l.Adapter.Modules) != 7 {
		t.Errorf("lookaheadkv: %+v", l)
	}
	// Judge Q, arXiv:2509.10798, table 7.
	j, err := training.Presets.Lookup("judgeq")
	if err != nil {
		t.Fatal(err)
	}
	if j.Epochs != 3 || j.Config.Batch != 32 || j.Rate("LlamaForCausalLM") != 5e-5 || j.Config.Schedule != "constant" || j.Config.Warmup != 0 || j.Config.WeightDecay == 0 || j.Adapter.Rows != 32 {
		t.Errorf("judgeq: %+v", j)
	}
	if got := training.StepsOf(3, 50000, 32); got != 4688 || j.Config.Steps != got {
		t.Errorf("3 epochs of 50,000 samples: %d steps", got)
	}
	for _, name := range training.Presets.Names() {
		p, _ := training.Presets.Lookup(name)
		p.Config.Adapters = []training.AdapterConfig{p.Adapter}
		p.Config.Adapters[0].LearningRate = p.Rate("")
		if err := p.Config.Validate(shallow(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWorking: the work between steps is told of unit by unit, to its end.
func TestWorking(t *testing.T) {
	tr := watched(t, shallow(t), both(2))
	var told []string
	var mu sync.Mutex
	tr.Working = func(units string, n int) (one, done func()) {
		count := 0
		return func() { mu.Lock(); count++; mu.Unlock() },
			func() { told = append(told, fmt.Sprintf("%d/%d %s", count, n, units)) }
	}
	if err := tr.HoldOut(t.Context(), stream(t, 80)); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"5/5 held-out responses", "5/5 validation samples"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// TestLastValidationStands: parameters whose validation the last step was are not validated again.
func TestLastValidationStands(t *testing.T) {
	tr := watched(t, shallow(t), both(1)) // which ends with a validation
	validated := 0
	tr.Working = func(units string, n int) (one, done func()) {
		if units == "validation samples" {
			validated++
		}
		return func() {}, func() {}
	}
	if err := tr.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	tr.RestoreBest()
	if v, err := tr.Validate(t.Context()); err != nil || v.Step != 1 || validated != 1 {
		t.Errorf("validated %d times (%v), want once, after step 1", validated, err)
	}
}
