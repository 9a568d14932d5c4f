//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestCUDAExpertsInBlocks: few rows go through experts in blocks in three launches, whatever the type of what comes down
// from them, and as exactly as float32 adds.
func TestCUDAExpertsInBlocks(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for i, c := range [][2]string{
		{"Q4_K", "Q6_K"}, {"Q6_K", "Q5_K"}, {"Q5_K", "Q4_K"}, {"Q8_0", "I8_BF16"}, {"I8_F16", "Q8_0"}, {"I8_BF16", "I8_F16"},
		{"I4_F16", "I4_BF16"}, {"I4_BF16", "I4_F16"}, {"E4M3_BF16", "E4M3_BF16"}, {"MXFP4", "E2M1_E8M0"}, {"E2M1_E8M0", "MXFP4"},
	} {
		const experts, out = 5, 19
		rows, in, width := 1+5*i%16, max(96, elems(t, c[0])), 2*max(48, elems(t, c[1]))
		run := func(d kernelstest.Device) (y []float64, launches int) {
			rng := rand.New(rand.NewPCG(15, uint64(i)))
			e := &kernels.FewExperts{Routing: kernels.Routing{TopK: 2, Normalise: true}, Act: kernels.Gate(i % 3)}
			for range experts {
				e.Each = append(e.Each, kernels.GatedRows{
					Gate: blockLayer(d, rng, c[0], width, in, i%2 == 0), Up: blockLayer(d, rng, c[0], width, in, false), Down: blockLayer(d, rng, c[1], out, width, i%2 == 1),
				})
			}
			x, logits, to := d.Tensor(kernelstest.Random(rng, rows*in, 1), rows, in), d.Tensor(kernelstest.Random(rng, rows*experts, 1), rows, experts), d.Garbage(rows, out)
			if d.B.OwnMemory() && !d.B.TakesExperts(rows, e) {
				t.Errorf("%v are refused", c)
			}
			experts := func() { d.B.FewExperts(to, x, logits, nil, e, rows, 0.5, d.B) }
			if d.B.OwnMemory() {
				launches = calls(d, experts)
			} else {
				experts()
			}
			return to.Float64s(), launches
		}
		got, launches := run(d)
		want, _ := run(exact)
		compare.Close(t, fmt.Sprintf("%d rows through %v", rows, c), got, want, 2e-5, compare.Floor(kernelstest.Magnitude(want)))
		if launches != 3 {
			t.Errorf("%v: %d launches, want 3", c, launches)
		}
	}
}

// TestCUDAExpertsRefused: what the kernels do not take is computed another way.
func TestCUDAExpertsRefused(t *testing.T) {
	d := openCUDA(t)
	rng := rand.New(rand.NewPCG(16, 1))
	for what, c := range map[string][3]string{
		"a type without kernels":   {"Q4_1", "Q4_1", "Q4_1"},
		"types of one layer":       {"Q8_0", "I8_BF16", "Q8_0"},
		"columns in another order": {"I4_F16", "I4_F16", "I4_F16" + ", out of order"},
	} {
		e := &kernels.FewExperts{Routing: kernels.Routing{TopK: 1}}
		for range 2 {
			e.Each = append(e.Each, kernels.GatedRows{
				Gate: blockLayer(d, rng, c[0], 64, 64, false), Up: blockLayer(d, rng, c[1], 64, 64, false), Down: blockLayer(d, rng, c[2], 64, 64, false),
			})
		}
		if d.B.TakesExperts(1, e) {
			t.Errorf("%s: taken", what)
		}
	}
}
