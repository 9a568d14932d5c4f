//go:build gpu && linux && amd64

package eviction_test

import (
	"errors"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestCUDAFootprint: with a hundredth more than is forecast a policy runs, and with a tenth
// less it does not, so that the forecast is within 10% of what is needed.
func TestCUDAFootprint(t *testing.T) {
	modeltest.NeedCUDA(t)
	shape := modeltest.Llama{Hidden: 64, Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 96, Vocab: 64, MaxPositions: 1024}
	const tokens, budget, maxNew = 600, 24, 3
	for _, name := range []string{"full", "snapkv", "laq", "d2o", "roco", "quest", "sparq"} {
		t.Run(name, func(t *testing.T) {
			backend, err := kernels.Open("cuda")
			if err != nil {
				t.Fatal(err)
			}
			meter := backend.(kernels.Meter)
			others := meter.Memory().Live
			m := shape.Open(t, "cuda")
			dry, counter := m.Dry()
			if used := meter.Memory().Live - others; counter.Live() != used {
				t.Errorf("weights of %d bytes are forecast, %d are used", counter.Live(), used)
			}
			o := eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew}
			_, need, err := eviction.NewRuntime(dry).Footprint(background, policy(t, dry, name), o)
			if err != nil {
				t.Fatal(err)
			}
			run := func(limit int64) error {
				defer meter.LimitMemory(others + limit)()
				rt := eviction.NewRuntime(m)
				s, err := rt.Prefill(background, policy(t, m, name), modeltest.Tokens(m, 1, tokens), budget, nil)
				if err == nil {
					_, _, err = s.Generate(background, model.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true})
				}
				return err
			}
			if err := run(need * 101 / 100); err != nil {
				t.Errorf("with a hundredth more than the %d KiB that are forecast: %v", need>>10, err)
			}
			var device *kernels.DeviceError
			if err := run(need * 9 / 10); !errors.As(err, &device) {
				t.Errorf("with a tenth less than the %d KiB that are forecast: error %v, want one of the device", need>>10, err)
			}
		})
	}
}
