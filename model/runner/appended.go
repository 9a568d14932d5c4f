package runner

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
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
	model.QueryRows
	peak     bool
	from, to int
}

// newAppended lays out the probes of a pass, which starts at position next after it.
func newAppended(c Capture, next int32) (f appendedProbes) {
	for i, probe := range slices.Concat(c.Probes, c.PeakProbes) {
		n := probe.Rows()
		f.probes = append(f.probes, appendedProbe{probe, i >= len(c.Probes), f.rows, f.rows + n})
		f.pos = append(f.pos, kvcache.Positions(firstPosition(probe, next), n)...)
		f.rows += n
	}
	return f
}

// embed writes the embeddings into the last rows of x.
func (f *appendedProbes) embed(m *model.Model, x *kernels.Tensor) {
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

// rowsWith are so many rows that begin with the prompt's.
func (f *appendedProbes) rowsWith(tokens []int32, rows int) []embeddedRows {
	out := []embeddedRows{{tokens: tokens}}
	if rows > len(tokens) {
		for _, p := range f.probes {
			out = append(out, embeddedRows{learned: p.QueryRows})
		}
	}
	return out
}

// lowRank are the updates of layer l for rows of which the first are the prompt's.
func (f *appendedProbes) lowRank(l, prompt, rows int) func(model.Module) []model.RowUpdate {
	if rows == prompt {
		return noLowRank
	}
	return func(m model.Module) (all []model.RowUpdate) {
		for _, p := range f.probes {
			if u := p.LowRank(l, m); u != nil {
				all = append(all, model.RowUpdate{LowRank: u, From: prompt + p.from, To: prompt + p.to})
			}
		}
		return all
	}
}

// observeAppended lets the appended rows attend, to the prompt and each probe to itself, and
// adds their scores to o. Where no output is asked for, v and out are nil; without k they have the pairs of another layer.
func (p *prefillPass) observeAppended(o *Observation, q, k, v, out *kernels.Tensor) {
	k, v = p.pairs.of(p.Runner, o.Layer, k, v)
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

// firstPosition is where the first of rows stands after a cache that goes on at next.
func firstPosition(rows model.QueryRows, next int32) int32 {
	if s, ok := rows.(model.ShiftedTokens); ok {
		return int32(max(0, int(next)+s.By))
	}
	return next
}
