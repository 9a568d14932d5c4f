package runner

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// Capture says what a pass observes; nothing else is computed.
type Capture struct {
	// Windows are numbers of last rows of the pass whose attention is observed, one
	// result each; a window longer than the pass is the whole pass.
	Windows []int
	// AllRows observes every row.
	AllRows bool
	// Squares observes, beside AllRows, which it needs, the squares of the
	// probabilities.
	Squares bool
	// Probes are run after the last row.
	Probes []model.QueryRows
	// PeakWindows and PeakProbes are like Windows and Probes, but what is observed is
	// the largest probability of any row instead of the mean over the rows.
	PeakWindows []int
	PeakProbes  []model.QueryRows
	// References are run as probes are. Of them the queries alone are kept.
	References []model.QueryRows
	// Spared are the layers that are not observed, though probes go through them; nil: none.
	Spared []bool
	// Queries keeps the rotated queries and own keys of all rows.
	Queries bool
	// Gates score all rows, chunk by chunk.
	Gates []model.Gate
}

// afterPrompt are the rows that run after the last row: probes of means, then of peaks, then references.
func (c *Capture) afterPrompt() []model.QueryRows {
	return slices.Concat(c.Probes, c.PeakProbes, c.References)
}

// everyRow tells that all rows of a pass are observed.
func (c *Capture) everyRow() bool { return c.AllRows || c.Queries || len(c.Gates) > 0 }

// in is what is observed in a layer.
func (c *Capture) in(layer int) Capture {
	if c.Spared != nil && c.Spared[layer] {
		return Capture{}
	}
	return *c
}

// Merge adds the needs of other, in the layers of c: its windows, probes and references follow c's.
func (c Capture) Merge(other Capture) Capture {
	return Capture{
		Windows: append(append([]int(nil), c.Windows...), other.Windows...),
		AllRows: c.AllRows || other.AllRows,
		Squares: c.Squares || other.Squares,
		Probes:  append(append([]model.QueryRows(nil), c.Probes...), other.Probes...),
		Queries: c.Queries || other.Queries,
		Gates:   append(append([]model.Gate(nil), c.Gates...), other.Gates...),
		Spared:  c.Spared,

		PeakWindows: append(append([]int(nil), c.PeakWindows...), other.PeakWindows...),
		PeakProbes:  append(append([]model.QueryRows(nil), c.PeakProbes...), other.PeakProbes...),
		References:  append(append([]model.QueryRows(nil), c.References...), other.References...),
	}
}

// Observation is what was observed in one layer, nothing of a recurrent one. Of layers that share a KV cache (Config.KVLayer) it is
// one for all: the layer is that which holds the cache, scores are means over the layers, as if their rows were rows of one, Peak
// fields the largest of any, and lse sums. All scores are logarithms of
// mean (of the Peak fields: largest) attention probabilities, [heads, width]; the column of query head h and
// index j belongs to entry j of KV head h / group, and columns beyond that
// head's entries are undefined. Tensors are valid until the observer returns.
type Observation struct {
	Layer   int
	Cache   *kvcache.Cache
	Windows []*kernels.Tensor // as in Capture.Windows
	AllRows *kernels.Tensor
	Squares *kernels.Tensor   // of the mean squared probability of all rows
	Probes  []*kernels.Tensor // as in Capture.Probes

	PeakWindows []*kernels.Tensor // as in Capture.PeakWindows
	PeakProbes  []*kernels.Tensor // as in Capture.PeakProbes

	// ProbeLSE and PeakProbeLSE are, of each of Probes and PeakProbes, the logarithms of
	// its rows' softmax denominators [heads, rows]. They are finite unless the rows are
	// not, which their scores need not show.
	ProbeLSE, PeakProbeLSE []*kernels.Tensor

	// StepDone tells that all layers of the pass, a decoding step, have run before the
	// first one is observed, and hold its pairs. Joint is then Windows[0] of all of them
	// together, [layers·heads, width], until the last one was observed; nil without.
	StepDone bool
	Joint    *kernels.Tensor

	outputNorms *kernels.Tensor // of the layer's entries, once a probe has asked for them

	Queries []*kernels.Tensor // [rows, heads, headDim], rotated, of each layer that reads the cache
	Keys    *kernels.Tensor   // [rows, kvHeads, headDim], rotated

	// References are the queries of each of Capture.References [rows, heads, headDim], rotated, once for each layer that reads the cache.
	References []*kernels.Tensor

	// Gates are the scores of each of Capture.Gates [kvHeads, width]: column j belongs to entry j of its KV head. Entries that
	// were there before the pass have −Inf. Of layers that share a KV cache they are those of the layer which holds it.
	Gates []*kernels.Tensor
}

// Observer receives the observations of a pass, layer by layer in ascending
// order, once the layer is done with all rows, and of a cache that layers share once the last of them is. It may call Cache.Retain on the
// observation's layer: the later layers don't read it, so the memory of a
// layer's full cache is free before the next layer's is needed
// (LookaheadKV, arXiv:2603.10899, algorithm 2). Of a decoding step it may be that all layers have run
// before the first one is observed (Observation.StepDone).
type Observer func(o *Observation) error
