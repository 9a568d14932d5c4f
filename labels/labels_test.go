package labels_test

import (
	"math"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	_ "glimpse/kernels/backends" // which tests open by name
	"glimpse/labels"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestLabelsAreTheirPolicies: the label of a prompt, joined over the query heads of a KV head as its policy does, is the policy's score,
// in one part or several.
func TestLabelsAreTheirPolicies(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2}.Open(t, "reference64")
	prompt, response := modeltest.Tokens(m, 1, 50), modeltest.Tokens(m, 2, 5)
	for name, l := range labels.Labels.All() {
		for _, more := range [][]string{nil, {"chunk=16"}} {
			if more != nil && l.Response {
				continue
			}
			policy, err := l.Configure(more...)
			if err != nil {
				t.Fatal(err)
			}
			r, cache := runner.New(m), kvcache.New(m)
			if _, err := r.Prefill(t.Context(), cache, prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
				t.Fatal(err)
			}
			got, err := labels.Observe(t.Context(), r, cache, policy, eviction.Prompt{Tokens: prompt, Response: response})
			if err != nil {
				t.Fatal(err)
			}
			study, err := eviction.NewRuntime(m).Study(t.Context(), []*eviction.Configured{policy}, eviction.Prompt{Tokens: prompt, Response: response}, []int{40}, runner.GenerateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for layer, heads := range study.Choices[0].Scores {
				for h, want := range heads {
					logs := got[layer].Float64s()
					joined, wide := make([]float64, len(want)), make([]float64, len(want))
					for j := range want {
						a, b := math.Exp(logs[(2*h)*len(want)+j]), math.Exp(logs[(2*h+1)*len(want)+j])
						if joined[j] = (a + b) / 2; name == "context" || name == "context+" {
							joined[j] = max(a, b)
						}
						wide[j] = float64(want[j])
					}
					compare.Close(t, name, joined, wide, 1e-5, compare.Floor(1e-9))
				}
			}
		}
	}
}

// TestOtherPoliciesAreNoLabels: what a policy sees of the prompt's own rows is no label.
func TestOtherPoliciesAreNoLabels(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "reference64")
	r, cache := runner.New(m), kvcache.New(m)
	prompt := modeltest.Tokens(m, 1, 20)
	if _, err := r.Prefill(t.Context(), cache, prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	policy, err := labels.Label{Policy: "knorm"}.Configure()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := labels.Observe(t.Context(), r, cache, policy, eviction.Prompt{Tokens: prompt}); err == nil {
		t.Error("no error")
	}
}
