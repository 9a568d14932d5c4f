package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	_ "glimpse/kernels/backends"
)

// TestDeltaBlocks: rows that go through a net's recurrence in blocks give what they give one by one, and leave the state that those
// leave, from a state that is not zero, where states last and where they are forgotten within a few rows; the fast float32 of a
// processor gives what float64 gives.
func TestDeltaBlocks(t *testing.T) {
	const hidden, rows = 24, 2*deltaBlock + 21
	for _, decay := range []float64{-8, 0, 4} { // logarithm of the rate
		for _, shape := range []DeltaShape{{KeyHeads: 2, ValueHeads: 4, KeyDim: 20, ValueDim: 36, Kernel: 4}, {KeyHeads: 1, ValueHeads: 1, KeyDim: 64, ValueDim: 64, Kernel: 2}} {
			t.Run(fmt.Sprintf("decay=%v/heads=%d", decay, shape.ValueHeads), func(t *testing.T) {
				run := func(device string, at ...int) (out []float64, s State) {
					b, err := kernels.Open(device)
					if err != nil {
						t.Fatal(err)
					}
					rng := rand.New(rand.NewPCG(3, 5))
					tensor := func(scale, mean float64, extents ...int) *kernels.Tensor {
						values := make([]float64, kernels.ShapeLen(extents))
						for i := range values {
							values[i] = float64(float32(mean + scale*rng.NormFloat64()))
						}
						x := b.Alloc(b.Compute(), extents...)
						kernels.Convert(x, kernels.FromF64(values, extents...))
						return x
					}
					s1 := shape
					group := s1.group()
					d := &DeltaNet{DeltaShape: &s1, Norm: Norm{Weight: tensor(0.2, 1, s1.ValueDim), Eps: 1e-6}}
					for _, n := range []int{2*s1.keys() + s1.values(), s1.values(), s1.ValueHeads, s1.ValueHeads} {
						d.In = append(d.In, tensor(0.3, 0, n, hidden))
					}
					d.Conv, d.Decay, d.Bias, d.Out = tensor(0.5, 0, 2*s1.keys()+s1.values(), 1, s1.Kernel), tensor(0.3, decay, s1.ValueHeads), tensor(0.3, 0, s1.ValueHeads), tensor(0.3, 0, hidden, s1.values())
					d.query, d.key, d.value = deltaPart{0, 0, s1.KeyDim}, deltaPart{0, s1.keys(), s1.KeyDim}, deltaPart{0, 2 * s1.keys(), group * s1.ValueDim}
					d.gate, d.beta, d.rate = deltaPart{1, 0, group * s1.ValueDim}, deltaPart{2, 0, group}, deltaPart{3, 0, group}
					s = State{tensor(0.5, 0, s1.KeyHeads, s1.Kernel-1, s1.channels()), tensor(0.5, 0, s1.ValueHeads, s1.KeyDim, s1.ValueDim)}
					h, arena, from := tensor(1, 0, rows, hidden), kernels.NewArena(b), 0
					for _, to := range append(at, rows) {
						y := b.Alloc(b.Compute(), to-from, hidden)
						d.Forward(y, MixerPass{On: b, Arena: arena, H: h.Rows(from, to), Runs: []Run{{Rows: to - from, State: s}}}, 1)
						out, from = append(out, y.Float64s()...), to
					}
					return out, s
				}
				var each []int
				for i := 1; i < rows; i++ {
					each = append(each, i)
				}
				want, wantState := run("reference64", each...)
				for name, at := range map[string][]int{"whole": nil, "pieces": {3, 3 + deltaBlock, rows - 10}} {
					got, state := run("reference64", at...)
					compare.CloseToScale(t, name, got, want, 1e-12)
					compare.CloseToScale(t, name+": state", state[1].Float64s(), wantState[1].Float64s(), 1e-12)
					compare.CloseToScale(t, name+": inputs", state[0].Float64s(), wantState[0].Float64s(), 1e-12)
					got, state = run("cpu", at...)
					compare.CloseToScale(t, name+" in float32", got, want, 2e-5)
					compare.CloseToScale(t, name+" in float32: state", state[1].Float64s(), wantState[1].Float64s(), 2e-5)
				}
			})
		}
	}
}
