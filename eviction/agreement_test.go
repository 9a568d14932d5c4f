package eviction_test

import (
	"math"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
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
		recall, tau, ok := eviction.Agreement(c.got, c.want, c.k)
		if math.Abs(recall-c.recall) > 1e-12 || math.Abs(tau-c.tau) > 1e-12 || ok != c.ok {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", c.name, recall, tau, ok, c.recall, c.tau, c.ok)
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
	study, err := eviction.NewRuntime(m).Study(background, all, modeltest.Tokens(m, 1, n), []int{budget}, 20)
	if err != nil {
		t.Fatal(err)
	}
	agreement := func(i int) (float64, float64, bool) {
		return eviction.Agreement(study.Plans[i].Scores, study.Plans[0].Scores, budget)
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
