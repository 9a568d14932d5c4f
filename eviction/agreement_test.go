package eviction_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestAgreement: means over heads that can be counted by hand.
func TestAgreement(t *testing.T) {
	up, down, flat := []float32{1, 2, 3, 4}, []float32{4, 3, 2, 1}, []float32{2, 2, 2, 2}
	swapped := []float32{1, 2, 4, 3}
	for _, c := range []struct {
		name        string
		got, want   [][][]float32
		k           int
		recall, tau float64
		ok          bool
	}{
		{"itself", [][][]float32{{up}, {down}}, [][][]float32{{up}, {down}}, 2, 1, 1, true},
		{"reversed", [][][]float32{{up}}, [][][]float32{{down}}, 2, 0, -1, true},
		// One of six pairs is exchanged: τ = 4/6; the two highest are the same.
		{"two neighbours exchanged", [][][]float32{{swapped}}, [][][]float32{{up}}, 2, 1, 2.0 / 3, true},
		{"the same, highest alone", [][][]float32{{swapped}}, [][][]float32{{up}}, 1, 0, 2.0 / 3, true},
		// τ of 1, −1, 2/3 and 1.
		{"mean over heads and layers", [][][]float32{{up, up}, {swapped, up}}, [][][]float32{{up, down}, {up, up}}, 1, 0.5, (2.0/3 + 1) / 4, true},
		{"a head without a ranking does not count", [][][]float32{{flat, up}}, [][][]float32{{up, up}}, 2, 1, 1, true},
		{"no ranking", [][][]float32{{flat}}, [][][]float32{{up}}, 2, 0, 0, false},
		{"no scores", nil, [][][]float32{{up}}, 2, 0, 0, false},
		{"nothing to compare with", [][][]float32{{up}}, nil, 2, 0, 0, false},
	} {
		recall, tau, ok := eviction.Agreement(c.got, c.want, c.k, 4)
		if ok != c.ok || math.Abs(tau-c.tau) > 1e-12 {
			t.Errorf("%s: τ %v, %v; want %v, %v", c.name, tau, ok, c.tau, c.ok)
		}
		if ok && (len(recall) != 2 || math.Abs(recall[0]-c.recall) > 1e-12 || recall[1] != 1) {
			t.Errorf("%s: recall %v at %d and 4, want %v and 1", c.name, recall, c.k, c.recall)
		}
	}
}

// TestAgreementOfPolicies: the oracle agrees with itself, a policy that observes
// the response's neighbourhood more than a uniform draw, which agrees by chance.
func TestAgreementOfPolicies(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 8, KVHeads: 8, HeadDim: 4, Seed: 3}.Open(t, "cpu")
	const n, budget = 150, 50
	var all []*eviction.Configured
	for _, name := range []string{"oracle", "random", "dapq", "streamingllm"} {
		all = append(all, policy(t, m, name))
	}
	study, err := eviction.NewRuntime(m).Study(background, all, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, n)}, []int{budget}, runner.GenerateOptions{MaxNew: 20})
	if err != nil {
		t.Fatal(err)
	}
	agreement := func(i int) (float64, float64, bool) {
		recall, tau, ok := eviction.Agreement(study.Choices[i].Scores, study.Choices[0].Scores, budget)
		if !ok {
			return 0, 0, false
		}
		return recall[0], tau, true
	}
	if recall, tau, ok := agreement(0); recall != 1 || math.Abs(tau-1) > 1e-12 || !ok {
		t.Errorf("oracle: %v, %v, %v", recall, tau, ok)
	}
	recall, tau, _ := agreement(1)
	if math.Abs(recall-float64(budget)/n) > 0.07 || math.Abs(tau) > 0.05 {
		t.Errorf("random: recall %v, want about %v; τ %v, want about 0", recall, float64(budget)/n, tau)
	}
	if r, k, _ := agreement(2); r <= recall+0.1 || k <= tau+0.1 {
		t.Errorf("dapq: %v and %v, a draw has %v and %v", r, k, recall, tau)
	}
	if _, _, ok := agreement(3); ok {
		t.Error("streamingllm has a ranking")
	}
}

func TestRecallAtK(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name              string
		scores, reference []float32
		k                 int
		want              float64
	}{
		{"same top", []float32{9, 1, 8, 2}, []float32{5, 0, 6, 1}, 2, 1},
		{"half", []float32{9, 1, 8, 2}, []float32{5, 6, 0, 1}, 2, 0.5},
		{"disjoint", []float32{1, 0}, []float32{0, 1}, 1, 0},
		{"all", []float32{1, 0, 5}, []float32{0, 1, 2}, 3, 1},
		{"k above n", []float32{1, 0}, []float32{0, 1}, 10, 1},
		{"plateau: lower positions win", []float32{7, 7, 7, 7}, []float32{4, 3, 2, 1}, 2, 1},
		{"plateau below the top", []float32{1, 1, 1, 9}, []float32{0, 5, 0, 9}, 2, 0.5},
		{"k of zero", []float32{1}, []float32{1}, 0, math.NaN()},
		{"none", nil, nil, 3, math.NaN()},
		{"NaN in scores", []float32{nan, 1}, []float32{0, 1}, 1, math.NaN()},
		{"NaN in reference", []float32{0, 1}, []float32{0, nan}, 1, math.NaN()},
	} {
		if got := eviction.RecallAtK(c.scores, c.reference, c.k); got != c.want && !(got != got && c.want != c.want) {
			t.Errorf("%s: recall %v, want %v", c.name, got, c.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("scores of two lengths: no panic")
		}
	}()
	eviction.RecallAtK([]float32{1}, nil, 1)
}

// TestRecallAgainstStableSort: with many equal scores, against positions that are sorted stably by falling score.
func TestRecallAgainstStableSort(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	top := func(scores []float32, k int) []int {
		order := make([]int, len(scores))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
		return order[:k]
	}
	for range 300 {
		n := 1 + r.IntN(40)
		x, y, k, levels := make([]float32, n), make([]float32, n), 1+r.IntN(n), 1+r.IntN(20)
		for i := range x {
			x[i], y[i] = float32(r.IntN(levels))-3, float32(r.IntN(levels))-3
		}
		both := 0
		for _, i := range top(x, k) {
			if slices.Contains(top(y, k), i) {
				both++
			}
		}
		if got, want := eviction.RecallAtK(x, y, k), float64(both)/float64(k); got != want {
			t.Fatalf("recall of %v and %v at %d: %v, want %v", x, y, k, got, want)
		}
	}
}

func BenchmarkAgreement(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	x, y := make([]float32, 32768), make([]float32, 32768)
	for i := range x {
		x[i] = r.Float32()
		y[i] = x[i] + r.Float32()
	}
	b.Run("entries=32768/budgets=3", func(b *testing.B) {
		for b.Loop() {
			eviction.Agreement([][][]float32{{x}}, [][][]float32{{y}}, 512, 1024, 2048)
		}
	})
}

// TestAnswerRecall: the best head counts, whatever the others keep.
func TestAnswerRecall(t *testing.T) {
	for name, c := range map[string]struct {
		kept   [][][]int32
		answer []int32
		want   float64
	}{
		"one head has all":            {[][][]int32{{{1, 4, 5}, {0}}, {{}, {2}}}, []int32{4, 5}, 1},
		"two heads have half each":    {[][][]int32{{{1, 4}, {5}}, {{0}, {2}}}, []int32{4, 5}, 0.5},
		"none has any":                {[][][]int32{{{1}, {2}}}, []int32{4, 5}, 0},
		"the best is in a late layer": {[][][]int32{{{4}, {}}, {{4, 5, 9}, {5}}}, []int32{4, 5, 9, 11}, 0.75},
	} {
		if got := eviction.AnswerRecall(c.kept, c.answer); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
