package datasets_test

import (
	"reflect"
	"strings"
	"testing"

	"glimpse/datasets"
)

// Example i is the same from Next, At, after Seek, and in a stream of which the
// task is the only one.
func TestStreamIsRandomAccess(t *testing.T) {
	tasks := []string{"section", "key1", "needle"}
	s := newStream(t, tasks, datasets.Test, 128, 9)
	var all []datasets.Example
	for range 12 {
		e, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	resumed := newStream(t, tasks, datasets.Test, 128, 9)
	resumed.Seek(7)
	for i := 7; i < 12; i++ {
		e, err := resumed.Next()
		if err != nil || !reflect.DeepEqual(e, all[i]) {
			t.Fatalf("after Seek(7), example %d is %+v, %v, want %+v", i, e, err, all[i])
		}
	}
	for i, want := range all {
		if got := at(t, s, i); !reflect.DeepEqual(got, want) {
			t.Fatalf("At(%d) differs from Next", i)
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
				text, err := datasets.Text(e.Prompt)
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

func TestStreamBetween(t *testing.T) {
	kinds := wordKinds(t)
	s, err := datasets.NewStreamBetween(datasets.Tasks.Names(), datasets.Train, 40, 200, 1)
	if err != nil {
		t.Fatal(err)
	}
	shortest, longest := 1000, 0
	for i := range 1000 {
		e := at(t, s, i)
		checkExample(t, kinds, e)
		shortest, longest = min(shortest, len(e.Prompt)), max(longest, len(e.Prompt))
		if !strings.Contains(e.ID, "/40-200/") {
			t.Fatalf("ID %s does not name the lengths", e.ID)
		}
	}
	if shortest != 40 || longest != 200 {
		t.Errorf("lengths %d to %d, want 40 to 200", shortest, longest)
	}
	if fixed, err := datasets.NewStreamBetween([]string{"section"}, datasets.Test, 64, 64, 8); err != nil || !reflect.DeepEqual(at(t, fixed, 3), at(t, newStream(t, []string{"section"}, datasets.Test, 64, 8), 3)) {
		t.Errorf("lengths 64 to 64 are not the same stream as length 64 (error %v)", err)
	}
}

func TestNewStreamErrors(t *testing.T) {
	for _, c := range []struct {
		name     string
		tasks    []string
		split    datasets.Split
		min, max int
		want     string
	}{
		{"no tasks", nil, datasets.Test, 64, 64, "got no tasks"},
		{"unknown task", []string{"sektion"}, datasets.Test, 64, 64, `unknown task "sektion", want one of: hops`},
		{"unknown split", []string{"section"}, "tset", 64, 64, `unknown split "tset", want one of: train, validation, test`},
		{"too short", []string{"section"}, datasets.Test, 39, 64, "got 39 tokens, want 40 to"},
		{"too long", []string{"section"}, datasets.Test, 64, 1 << 30, "got 1073741824 tokens, want 40 to"},
		{"reversed", []string{"section"}, datasets.Test, 65, 64, "got lengths 65 to 64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := datasets.NewStreamBetween(c.tasks, c.split, c.min, c.max, 0)
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
			for b.Loop() {
				if _, err := s.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
