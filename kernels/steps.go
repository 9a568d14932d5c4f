package kernels

import "math/bits"

// Steps is where the operations of decoding steps of some sequences find what changes
// from one step to the next, in device memory: the tokens, their positions, where the
// pairs of every KV head lie and how many there are. Steps that read it there can be
// recorded once and replayed for every token.
type Steps interface {
	// Tokens [rows], I32, are the tokens of the next step. What samples on the device writes
	// them there, and the host then leaves them out of SetStep.
	Tokens() *Tensor
}

// Stepper is a Backend with operations that read Steps, whose pairs and attention a device
// finds where they lie.
type Stepper interface {
	Backend

	// NewSteps makes room for rows sequences with so many layers and KV heads.
	NewSteps(rows, layers, kvHeads int) Steps
	// StepBuckets returns up to how many entries a step is to serve for that is recorded for longest, the
	// entries of the longest heads [sequence][layer] (0 where a segment attends), with the bits of a step that
	// is not recorded. Steps share buckets as far as they can. headDim is the length of a head.
	StepBuckets(longest [][]int, pairs DType, headDim int) [][]int
	// SetSteps tells what the cache of a sequence holds before the next step, past
	// [layer][kvHead], and its position. StartStep keeps count from then on, so it is
	// needed only where the cache has changed otherwise.
	SetSteps(s Steps, sequence int, pos int32, past [][]KV)
	// SetStep gives the next step the tokens of its sequences, nil for those that are
	// there already, and, for models with sliding windows, the first entry
	// [sequences·layers·kvHeads] that each head sees.
	SetStep(s Steps, tokens, first []int32)

	// StartStep counts the positions and pairs of the first sequences, which take a step;
	// the rows after them only fill it up.
	StartStep(s Steps, sequences int)
	// StepGather is Gather of the step's tokens: y [rows, width].
	StepGather(y, table *Tensor, s Steps)
	// StepRoPE is RoPE of x [rows, heads, headDim] at the step's positions.
	StepRoPE(x *Tensor, s Steps, table *RoPETable)
	// StepHeads is RotateHeads at the step's positions, and appends the pairs k, v [rows,
	// kvHeads, headDim] of the first sequences to their heads of a layer, which have room for
	// them: StepAttention is then told that they are Appended.
	StepHeads(q, k, v *Tensor, norms HeadNorms, table *RoPETable, s Steps, sequences, layer int, pairs DType)
	// StepAttention appends the pairs k, v [n, kvHeads, headDim] of n sequences from at.Sequence on to their heads
	// of a layer, which have room for them, unless they are Appended, and attends: out [n, heads·headDim] of q [n,
	// heads, headDim]. Where nothing is to be attended to, out takes the queries: the segments of a
	// graph that attend find them there.
	StepAttention(out, q, k, v *Tensor, s Steps, at StepLayer)
}

// StepLayer says what a StepAttention attends to.
type StepLayer struct {
	Sequence, Layer int
	Pairs           DType   // of the cache
	Longest         []int   // entries of each sequence's longest head, the step's own included; recorded, it serves for what StepBuckets says. None: nothing is attended to
	Windowed        bool    // by a sliding window
	Appended        bool    // the pairs are there already
	Scale           float64 // of the logits
	SoftCap         float64 // and Sinks: as in an Attend
	Sinks           *Tensor
	Scores          *Tensor // [heads, at least Longest] of an only sequence: what ObserveAttention would write; nil for none
}

// minBucket is the least difference of buckets.
const minBucket = 256

// EntryBucket is the number of entries that a decoding step over n entries is cut into:
// the next multiple of an eighth of the power of two below n, of 256 at least.
func EntryBucket(n int) int {
	if n <= minBucket {
		return minBucket
	}
	step := max(minBucket, 1<<(bits.Len(uint(n-1))-1)/8)
	return (n + step - 1) / step * step
}
