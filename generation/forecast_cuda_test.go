//go:build gpu && linux && (amd64 || arm64)

package generation_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"glimpse/generation"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestCUDAForecast: with a hundredth more memory than is forecast all responses are
// generated, with a tenth less that is refused, and fails where it is not; greedy and
// sampled, with caches of both types.
func TestCUDAForecast(t *testing.T) {
	modeltest.NeedCUDA(t)
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0") // with which a driver that guards memory keeps what every operation has used
	backend, err := kernels.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	meter := backend
	for _, c := range []struct {
		dtype string
		opt   generation.Options
	}{
		{"float32", generation.Options{MaxNew: 5, Batch: 3}},
		{"bf16", generation.Options{MaxNew: 5, Batch: 4, Sampling: model.Sampling{Temperature: 1, TopK: 9}}},
		{"float32", generation.Options{MaxNew: 5, Batch: 3, Sampling: model.Sampling{Temperature: 1, MinP: 0.1, Processors: model.Processors{RepetitionPenalty: 1.1}}}},
		{"bf16", generation.Options{MaxNew: 5, Batch: 6}}, // in two groups, whose passes may or may not meet
	} {
		others := meter.Memory().Live
		m := modeltest.Llama{Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 96, Vocab: 64, MaxPositions: 1024}.Open(t, "cuda")
		if err := m.SetCacheDType(c.dtype); err != nil {
			t.Fatal(err)
		}
		const prompt = 300
		many := 2*c.opt.Batch + 1
		k, err := generation.Forecast(t.Context(), m, prompt, many, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: forecast %+v", c.dtype, k)
		pairs := func(limit int64) error {
			defer meter.LimitMemory(others + limit)()
			given := 0
			next := func() (generation.Prompt, error) {
				if given++; given > many {
					return generation.Prompt{}, io.EOF
				}
				return generation.Prompt{IDs: modeltest.Tokens(m, uint64(given), prompt)}, nil
			}
			var s sink
			err := generation.Pairs(t.Context(), m, next, &s, c.opt)
			if err == nil && len(s.pairs) != many {
				t.Errorf("%d pairs, want %d", len(s.pairs), many)
			}
			return err
		}
		if err := pairs(k.Total * 101 / 100); err != nil {
			t.Errorf("%s: with a hundredth more than the %d KiB that are forecast: %v", c.dtype, k.Total>>10, err)
		}
		var device *kernels.DeviceError
		if c.opt.Batch > 4 {
			continue
		}
		if err := pairs(k.Total * 9 / 10); !errors.As(err, &device) || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("%s: with a tenth less than the %d KiB that are forecast: error %v, want one of the device", c.dtype, k.Total>>10, err)
		}
		weights := meter.Memory().Live - others
		for percent, want := range map[int64]error{110: nil, 90: model.ErrMemory} {
			restore := meter.LimitMemory(meter.Memory().Held + k.Total*percent/100)
			err := generation.CheckMemory(t.Context(), m, nil, prompt, many, c.opt)
			restore()
			if !errors.Is(err, want) {
				t.Errorf("%s: CheckMemory with %d percent of %d KiB, %d of them weights: %v, want %v", c.dtype, percent, k.Total>>10, weights>>10, err, want)
			}
			if err != nil {
				t.Log(err)
			}
		}
	}
}
