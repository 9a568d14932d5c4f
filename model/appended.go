package model

import (
	"slices"

	"glimpse/kernels"
)

// appendedProbes are the rows of probes that go through every layer with the last rows of a
// prompt, as the papers append them to it: the weights are read once for both. They
// follow the prompt in the residual stream, but only their own low-rank updates act on
// them, and their keys and values stay out of the cache.
type appendedProbes struct {
	probes []appendedProbe // of means and then of peaks
	rows   int
	pos    []int32
}

// appendedProbe is rows [from, to) of the appended ones.
type appendedProbe struct {
	QueryRows
	peak     bool
	from, to int
}

// newAppended lays out the probes of a pass, which starts at position next after it.
func newAppended(c Capture, next int32) (f appendedProbes) {
	for i, probe := range slices.Concat(c.Probes, c.PeakProbes) {
		n := probe.Rows()
		f.probes = append(f.probes, appendedProbe{probe, i >= len(c.Probes), f.rows, f.rows + n})
		f.pos = append(f.pos, positions(firstPosition(probe, next), n)...)
		f.rows += n
	}
	return f
}

// embed writes the embeddings into the last rows of x.
func (f *appendedProbes) embed(m *Model, x *kernels.Tensor) {
	at := x.Dim0() - f.rows
	for _, p := range f.probes {
		p.Embeddings(m, x.Rows(at+p.from, at+p.to))
	}
}

// positions are those of rows [from, to) of a prompt at positions pos and the appended rows
// after it.
func (f *appendedProbes) positions(pos []int32, from, to int) []int32 {
	if to <= len(pos) {
		return pos[from:to]
	}
	return slices.Concat(pos[from:], f.pos)
}

// lowRank are the updates of layer l for rows of which the first are the prompt's.
func (f *appendedProbes) lowRank(l, prompt, rows int) func(Module) *LowRank {
	if rows == prompt {
		return noLowRank
	}
	return func(m Module) (all *LowRank) {
		for _, p := range slices.Backward(f.probes) {
			if u := p.LowRank(l, m); u != nil {
				own := *u
				own.from, own.to, own.next = prompt+p.from, prompt+p.to, all
				all = &own
			}
		}
		return all
	}
}

// observeAppended lets the appended rows attend, to the prompt and each probe to itself, and
// adds their scores to o. Where no output is asked for, v and out are nil.
func (p *prefillPass) observeAppended(o *Observation, q, k, v, out *kernels.Tensor) {
	for _, probe := range p.appended.probes {
		rows := func(x *kernels.Tensor) *kernels.Tensor {
			if x == nil {
				return nil
			}
			return x.Rows(probe.from, probe.to)
		}
		a := p.attend(p.cache, o.Layer, rows(q), p.appended.pos[probe.from:probe.to])
		a.K, a.V = rows(k), rows(v)
		scores, lse := p.observeProbe(rows(out), a, probe.peak)
		o.addProbe(scores, lse, probe.peak)
	}
}
