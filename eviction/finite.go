package eviction

import (
	"fmt"
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

// finite watches a pass for scores that are no number to rank by: NaN, and +Inf. −Inf is
// one, the logarithm of no attention at all. Others come from numbers of an adapter, or
// of weights, whose products leave the range of a float32. TopK would rank NaN below
// everything and keep the first entries.
//
// The error waits for the end of the pass, or of the decoding step: where the weights are to
// blame, the logits are not finite either, and that error names the weight. On a device,
// attention of a step that is not finite reaches the logits; what a policy keeps there from
// step to step is not read.
type finite struct {
	err error
	// lse are on a device, of every probe, the lse of its rows [layers·heads, rows], so
	// that the host reads one number a pass. Observations of the prompt's own rows need
	// none: what is not finite there reaches the logits.
	lse []*kernels.Tensor
}

// recordFailure takes down the first score that is not finite.
func (f *finite) recordFailure(layer, head int, what string, value float64) {
	if f.err == nil {
		f.err = fmt.Errorf("layer %d: KV head %d: %s is %v: %w", layer, head, what, value, model.ErrNonFinite)
	}
}

// scores takes in the scores of a layer where the host can read them.
func (f *finite) scores(layer int, s *Scores) {
	if s.Ops.OwnMemory() {
		return
	}
	for h, row := range append(s.Rows(), s.hostRows(s.Spread)...) {
		if j := slices.IndexFunc(row, func(v float32) bool { return !(v <= math.MaxFloat32) }); j >= 0 {
			f.recordFailure(layer, h%len(s.Entries), fmt.Sprintf("the score of entry %d of %d", j, len(row)), float64(row[j]))
		}
	}
}

// probes takes in the rows of a layer's probes, whose lse is NaN where any logit is not
// finite; the scores of such a row may be.
func (f *finite) probes(o *runner.Observation, c *model.Config) {
	ops := o.Cache.On(0).Selector() // where the scores of all layers meet
	for i, lse := range slices.Concat(o.ProbeLSE, o.PeakProbeLSE) {
		if !ops.OwnMemory() {
			f.checkRows(o.Layer, lse, c)
			continue
		}
		if o.Layer == 0 {
			f.lse = append(f.lse, ops.Alloc(lse.DType, c.Layers*c.Heads, lse.Width()))
		}
		ops.Copy(f.lse[i].Rows(o.Layer*c.Heads, (o.Layer+1)*c.Heads), lse)
	}
}

// checkRows looks at the lse [heads, rows] of layers from the given one on.
func (f *finite) checkRows(layer int, lse *kernels.Tensor, c *model.Config) {
	for i, v := range lse.Float64s() {
		if v-v != 0 {
			at := i / lse.Width()
			f.recordFailure(layer+at/c.Heads, at%c.Heads*c.KVHeads/c.Heads, fmt.Sprintf("the attention of row %d that the policy appends", i%lse.Width()), v)
			return
		}
	}
}

// finite is an error if a score of the pass is not. It waits for the device.
func (r *observer) finite(b kernels.Backend) error {
	f := &r.watched
	for _, lse := range f.lse {
		if sum := b.SumSquares(lse); sum-sum != 0 {
			f.checkRows(0, lse, r.prompt.Config)
		}
	}
	f.lse = nil
	return f.errorOf(r.policy.Name)
}

// errorOf is the error of a policy.
func (f *finite) errorOf(policy string) error {
	if f.err != nil {
		return fmt.Errorf("policy %s: %w", policy, f.err)
	}
	return nil
}
