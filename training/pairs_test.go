package training

import (
	"fmt"
	"slices"
	"testing"

	"glimpse/datasets"
)

func pairsOf(prompts ...int32) []datasets.Pair {
	var out []datasets.Pair
	for i, p := range prompts {
		out = append(out, datasets.Pair{ID: fmt.Sprint(i), PromptIDs: []int32{1, p}})
	}
	return out
}

func promptsOf(pairs []datasets.Pair) []int32 {
	var out []int32
	for _, p := range pairs {
		out = append(out, p.PromptIDs[1])
	}
	slices.Sort(out)
	return out
}

// TestHoldOutPairs: what is held out depends on the prompts alone, and a prompt that is there
// twice is on one side.
func TestHoldOutPairs(t *testing.T) {
	all := pairsOf(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	rest, held := HoldOutPairs(all, 3)
	if len(held) != 3 || len(rest) != 7 {
		t.Fatalf("%d held out of 10, %d left, want 3 and 7", len(held), len(rest))
	}
	want := promptsOf(held)
	turned := slices.Clone(all)
	slices.Reverse(turned)
	if _, again := HoldOutPairs(turned, 3); !slices.Equal(promptsOf(again), want) {
		t.Errorf("in another order: %v, want %v", promptsOf(again), want)
	}
	doubled := append(slices.Clone(all), all...)
	rest, held = HoldOutPairs(doubled, 3)
	for _, p := range promptsOf(held) {
		if slices.Contains(promptsOf(rest), p) {
			t.Errorf("prompt %d is trained on and held out", p)
		}
	}
	if rest, held = HoldOutPairs(all, 0); len(rest) != 10 || held != nil {
		t.Errorf("none asked for: %d left, %d held out", len(rest), len(held))
	}
	if rest, held = HoldOutPairs(pairsOf(4, 4, 4), 1); len(rest) != 3 || held != nil {
		t.Errorf("one prompt alone: %d left, %d held out, want all left", len(rest), len(held))
	}
}

// listed is a source of given prompts, again and again.
type listed [][]int32

func (l listed) Describe() string { return "listed" }
func (listed) DrawnFrom() string  { return "" }
func (l listed) Repeats() bool    { return true }
func (l listed) At(i int) (Sample, error) {
	return Sample{ID: fmt.Sprint(i), Prompt: l[i%len(l)]}, nil
}

// TestInvocation: the tokens that end every prompt, eight at most and one at least.
func TestInvocation(t *testing.T) {
	for name, c := range map[string]struct {
		prompts listed
		want    []int32
	}{
		"common end":       {listed{{1, 2, 3, 8, 9}, {4, 8, 9}, {8, 8, 9}}, []int32{8, 9}},
		"a whole prompt":   {listed{{8, 9}, {1, 8, 9}}, []int32{8, 9}},
		"nothing common":   {listed{{1, 2}, {1, 3}}, []int32{2}},
		"longer than that": {listed{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, []int32{3, 4, 5, 6, 7, 8, 9, 10}},
	} {
		got, err := Invocation(c.prompts)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", name, got, err, c.want)
		}
	}
}
