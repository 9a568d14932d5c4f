package datasets_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

// Example i is the same in any order, and in a stream of which the task is the only one.
func TestStreamIsRandomAccess(t *testing.T) {
	tasks := []string{"section", "key1", "needle"}
	s := newStream(t, tasks, datasets.Test, 128, 9)
	var all []datasets.Example
	for i := range 12 {
		all = append(all, at(t, s, i))
	}
	resumed := newStream(t, tasks, datasets.Test, 128, 9)
	for i, want := range slices.Backward(all) {
		if got := at(t, resumed, i); !reflect.DeepEqual(got, want) {
			t.Fatalf("example %d is %+v where it is not asked for in order, want %+v", i, got, want)
		}
		if want.Task != tasks[i%3] {
			t.Fatalf("example %d is of task %s, want %s", i, want.Task, tasks[i%3])
		}
		if alone := newStream(t, []string{want.Task}, datasets.Test, 128, 9); !reflect.DeepEqual(at(t, alone, i), want) {
			t.Fatalf("example %d depends on the other tasks", i)
		}
	}
}

// Any change of the settings changes the examples.
func TestStreamsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, split := range []datasets.Split{datasets.Train, datasets.Validation, datasets.Test} {
		for seed := range uint64(20) {
			s := newStream(t, []string{"section", "items"}, split, 64, seed)
			for i := range 20 {
				e := at(t, s, i)
				if got := datasets.SplitOf(e.Prompt); got != split {
					t.Fatalf("%s belongs to split %s", e.ID, got)
				}
				text, err := datasets.WordsText(e.Prompt)
				if err != nil {
					t.Fatal(err)
				}
				if other, ok := seen[text]; ok {
					t.Fatalf("%s has the prompt of %s", e.ID, other)
				}
				seen[text] = e.ID
			}
		}
	}
}

func TestSplitShares(t *testing.T) {
	const prompts = 5000
	count := map[datasets.Split]int{}
	for i := range prompts {
		count[datasets.SplitOf([]int32{1, 3, int32(i)})]++
	}
	for split, share := range map[datasets.Split]float64{datasets.Train: 0.8, datasets.Validation: 0.1, datasets.Test: 0.1} {
		// Four and a half standard deviations of the rare splits' counts.
		if got := float64(count[split]) / prompts; got < share-0.02 || got > share+0.02 {
			t.Errorf("split %s has %.3f of all prompts, want %.1f", split, got, share)
		}
	}
}

func TestNewStreamErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		tasks  []string
		split  datasets.Split
		tokens int
		want   string
	}{
		{"no tasks", nil, datasets.Test, 64, "got no tasks"},
		{"unknown task", []string{"sektion"}, datasets.Test, 64, `unknown task "sektion", want one of: hops`},
		{"unknown split", []string{"section"}, "tset", 64, `unknown split "tset", want one of: train, validation, test`},
		{"too short", []string{"section"}, datasets.Test, 39, "got 39 tokens, want 40 to"},
		{"too long", []string{"section"}, datasets.Test, 1 << 30, "got 1073741824 tokens, want 40 to"},
		{"negative", []string{"section"}, datasets.Test, -1, "got -1 tokens, want 40 to"},
		{"nothing", []string{"section"}, datasets.Test, 0, "got 0 tokens, want 40 to 1048576"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := datasets.NewStream(c.tasks, c.split, c.tokens, 0)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
		})
	}
	if _, err := newStream(t, []string{"section"}, datasets.Test, 64, 0).At(-1); err == nil {
		t.Error("At(-1) gave no error")
	}
}

func BenchmarkStream(b *testing.B) {
	for _, split := range []datasets.Split{datasets.Train, datasets.Test} {
		b.Run("tokens=512/split="+string(split), func(b *testing.B) {
			s := newStream(b, datasets.Tasks.Names(), split, 512, 1)
			for i := 0; b.Loop(); i++ {
				if _, err := s.At(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
