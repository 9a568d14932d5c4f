package runner_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// told is a token of a prompt with what a pass tells of it.
type told struct {
	id      int32
	logProb float64
	top     []runner.LogProb
}

// promptLogProbs runs tokens behind a cache, and returns what is told of them and the last row's logits.
func promptLogProbs(t *testing.T, m *model.Model, cache *kvcache.Cache, tokens []int32, opt runner.PrefillOptions, top int) (all []told, logits []float32) {
	t.Helper()
	opt.LogProbs = &runner.PromptLogProbs{Top: top, Each: func(id int32, p float64, top []runner.LogProb) { all = append(all, told{id, p, top}) }}
	logits, err := runner.New(m).Prefill(context.Background(), cache, tokens, opt)
	if err != nil {
		t.Fatal(err)
	}
	return all, logits
}

// TestPromptLogProbsAgainstTransformers: what is told of a prompt's tokens is the logarithm of the softmax of transformers'
// logits, for every family, whole and in chunks, and the last row's logits are what they are when nothing is told.
func TestPromptLogProbsAgainstTransformers(t *testing.T) {
	for _, g := range modeltest.Some(t, modeltest.Goldens(t)) {
		for _, device := range kernels.Backends.Names() {
			if device != "cpu" && g.Name != "llama3.1" {
				continue
			}
			t.Run(g.Name+"/"+device, func(t *testing.T) {
				m, err := model.Open(g.Folder, model.Options{Device: device})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				for _, p := range g.Prompts {
					scale := 0.0
					for _, v := range p.Logits.Values {
						scale = max(scale, math.Abs(float64(v)))
					}
					plain, _ := prefill(t, m, p.IDs, 0)
					for _, chunk := range []int{0, 5} {
						got, last := promptLogProbs(t, m, kvcache.New(m), p.IDs, runner.PrefillOptions{Chunk: chunk}, 2)
						if len(got) != len(p.IDs)-1 {
							t.Fatalf("chunks of %d: told of %d tokens, want all %d but the first", chunk, len(got), len(p.IDs))
						}
						if worst := largestError(last, plain); worst > 1e-4*scale {
							t.Errorf("chunks of %d: the last row's logits are off by %.2g", chunk, worst)
						}
						for i, of := range got {
							row := p.Logits.At(i)
							if want := logSoftmax(row, p.IDs[i+1]); of.id != p.IDs[i+1] || !(math.Abs(of.logProb-want) <= 1e-3*scale) {
								t.Fatalf("chunks of %d: token %d: told of %d with %v, want %d with %v", chunk, i+1, of.id, of.logProb, p.IDs[i+1], want)
							}
							best := slices.Max(row)
							if of.top[0].LogProb < of.top[1].LogProb || float64(best-row[of.top[0].ID]) > 1e-3*scale {
								t.Errorf("chunks of %d: token %d: the likeliest are %v", chunk, i+1, of.top)
							}
						}
					}
				}
			})
		}
	}
}

func largestError(got, want []float32) (e float64) {
	for i := range want {
		e = max(e, math.Abs(float64(got[i])-float64(want[i])))
	}
	return e
}

// TestPromptLogProbsGoOn: of a pass behind another one its own tokens are told of, from the second one on, with what was run before
// in view; of one token nothing. Layers on several devices tell the same bits.
func TestPromptLogProbsGoOn(t *testing.T) {
	shape := modeltest.Llama{Layers: 4, Seed: 2}
	m := shape.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 1, 50)
	whole, _ := promptLogProbs(t, m, kvcache.New(m), tokens, runner.PrefillOptions{}, 0)
	_, cache := prefill(t, m, tokens[:21], 0)
	after, _ := promptLogProbs(t, m, cache, tokens[21:], runner.PrefillOptions{}, 0)
	if len(after) != 28 {
		t.Fatalf("told of %d tokens, want 28", len(after))
	}
	for i, of := range after {
		if want := whole[21+i]; of.id != want.id || math.Abs(of.logProb-want.logProb) > 1e-4 {
			t.Errorf("token %d: %v, want %v", 22+i, of, want)
		}
	}
	if one, _ := promptLogProbs(t, m, kvcache.New(m), tokens[:1], runner.PrefillOptions{}, 0); len(one) != 0 {
		t.Errorf("of a prompt of one token: %v", one)
	}
	split := shape.Open(t, "cpu,cpu")
	there, _ := promptLogProbs(t, split, kvcache.New(split), tokens, runner.PrefillOptions{Chunk: 7}, 0)
	here, _ := promptLogProbs(t, m, kvcache.New(m), tokens, runner.PrefillOptions{Chunk: 7}, 0)
	if !slices.EqualFunc(here, there, func(a, b told) bool { return a.id == b.id && a.logProb == b.logProb }) {
		t.Errorf("on two devices: %v, want %v", there, here)
	}
}
