//go:build gpu && linux && (amd64 || arm64)

package generation_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestCUDAMemory: with a hundredth more memory beside the weights than one response at a time needs all are
// generated, greedy and sampled, with caches of both types; and they are
// those of a generation that has enough; CheckMemory refuses a tenth less.
func TestCUDAMemory(t *testing.T) {
	modeltest.NeedCUDA(t)
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0") // with which a driver that guards memory keeps what every operation has used
	meter, err := kernels.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dtype string
		opt   generation.Options
	}{
		{"float32", generation.Options{MaxNew: 5, Batch: 3}},
		{"bf16", generation.Options{MaxNew: 5, Batch: 4, Sampling: model.Sampling{Temperature: 1, TopK: 9}}},
		{"float32", generation.Options{MaxNew: 5, Batch: 3, Sampling: model.Sampling{Temperature: 1, MinP: 0.1, Processors: model.Processors{RepetitionPenalty: 1.1}}}},
	} {
		others := meter.Memory().Live
		m := modeltest.Llama{Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 96, Vocab: 64, MaxPositions: 1024}.Open(t, "cuda")
		if err := m.SetCacheDType(c.dtype); err != nil {
			t.Fatal(err)
		}
		const prompt, many = 288, 9
		weights, one := meter.Memory().Live-others, need(t, m, prompt, c.opt)
		pairs := func(memory int64) []datasets.Pair {
			if memory > 0 {
				defer meter.LimitMemory(others + weights + memory)()
			}
			c.opt.Memory = memory
			given := 0
			return run(t, m, func() (generation.Prompt, error) {
				if given++; given > many {
					return generation.Prompt{}, io.EOF
				}
				return generation.Prompt{ID: fmt.Sprint(given), IDs: modeltest.Tokens(m, uint64(given), prompt)}, nil
			}, c.opt)
		}
		if got, want := pairs(one*101/100), pairs(0); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other pairs with %d KiB than with enough", c.dtype, one>>10)
		}
		for percent, want := range map[int64]error{110: nil, 90: model.ErrMemory} {
			restore := meter.LimitMemory(meter.Memory().Held + (weights+one)*percent/100)
			err := generation.CheckMemory(t.Context(), m, nil, prompt, many, c.opt)
			restore()
			if !errors.Is(err, want) {
				t.Errorf("%s: CheckMemory with %d percent of %d KiB, %d of them weights: %v, want %v", c.dtype, percent, (weights+one)>>10, weights>>10, err, want)
			}
		}
	}
}
