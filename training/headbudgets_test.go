package training_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/training"
)

// TestHeadBudgets: budgets are the means over contexts of what heads keep; a run that was stopped, or killed in a line, goes
// on to the same file, and none goes on of other settings.
func TestHeadBudgets(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2}.Open(t, "cpu")
	overrides, err := eviction.ParseOverrides([]string{"kvzip.head-budgets=global"})
	if err != nil {
		t.Fatal(err)
	}
	label, err := eviction.New("kvzip", 0, overrides, nil)
	if err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(t.TempDir(), "budgets.partial")
	stop := errors.New("stopped")
	run := func(after int, change func(r *training.HeadBudgetsRun)) (*eviction.HeadBudgets, int, error) {
		at, measured := 0, 0
		r := &training.HeadBudgetsRun{Model: m, Label: label, Text: "kvzip", Budgets: []float64{0.1, 0.25}, Contexts: 4, Partial: partial, Progress: func(int) { measured++ },
			Next: func() ([]int32, []int32, error) {
				if at++; at > after {
					return nil, nil, stop
				}
				return modeltest.Tokens(m, uint64(at), 60+10*at), nil, nil
			}}
		if change != nil {
			change(r)
		}
		b, err := r.Run(context.Background())
		return b, measured, err
	}
	whole, _, err := run(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Check(m, false); err != nil {
		t.Error(err)
	}
	var means []float64
	for _, at := range whole.Budgets {
		sum := 0.0
		for _, heads := range at.Heads {
			for _, x := range heads {
				sum += x / 6
			}
		}
		means = append(means, sum)
	}
	if d := means[0] - 0.1; d > 0.01 || d < -0.01 {
		t.Errorf("heads keep %v of a context in the mean, want 0.1 and 0.25", means)
	}
	if whole.Samples != 4 || whole.Tokens != 70+80+90+100 || whole.Label != "kvzip" || len(whole.SHA256) != 64 {
		t.Errorf("of %d contexts, %d tokens, label %q, model %q", whole.Samples, whole.Tokens, whole.Label, whole.SHA256)
	}

	if err := os.Remove(partial); err != nil {
		t.Fatal(err)
	}
	if _, n, err := run(2, nil); !errors.Is(err, stop) || n != 2 {
		t.Fatalf("stopped after %d contexts: %v", n, err)
	}
	raw, err := os.ReadFile(partial)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(partial, raw[:len(raw)-9], 0o644); err != nil { // in the line of the second
		t.Fatal(err)
	}
	again, _, err := run(4, nil)
	if err != nil || !reflect.DeepEqual(again, whole) {
		t.Errorf("gone on: %v, the same: %v", err, reflect.DeepEqual(again, whole))
	}
	if _, _, err := run(4, func(r *training.HeadBudgetsRun) { r.Text = "other" }); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("of another label: %v", err)
	}
	if _, _, err := run(4, func(r *training.HeadBudgetsRun) {
		next := r.Next
		r.Next = func() ([]int32, []int32, error) { ids, _, err := next(); ids[3]++; return ids, nil, err }
	}); err == nil || !strings.Contains(err.Error(), "have changed") {
		t.Errorf("of other texts: %v", err)
	}

	b, err := whole.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := eviction.ParseHeadBudgets(b)
	if err != nil || read.Check(m, false) != nil {
		t.Fatal(err, read)
	}
	for what, text := range map[string]string{"another format": strings.Replace(string(b), "glimpse-head-budgets", "x", 1), "a part": string(b[:len(b)/2]), "nothing": ""} {
		if _, err := eviction.ParseHeadBudgets([]byte(text)); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
