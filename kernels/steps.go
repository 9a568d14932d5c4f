package kernels

import "math/bits"

// Steps is where the operations of decoding steps find what changes from one step to
// the next, in device memory: the token, its position, where the pairs of every KV
// head lie and how many there are. Steps that read it there can be recorded once and
// replayed for every token.
type Steps struct {
	// Token [1], I32, is the token of the next step. What samples on the device writes
	// it there, and the host then leaves it out of SetStep.
	Token *Tensor

	layers, kvHeads int
	pos             *Tensor // [1]
	first           *Tensor // [layers·kvHeads]: the first entry inside the sliding window
	past            *Tensor // [layers·kvHeads, pastInts], struct Past of cuda/attention.h
	header          *Tensor // pos, Token and first, one after another
}

// pastInts is the size of struct Past in int32.
const pastInts = 6

// Stepper is a Backend with operations that read Steps.
type Stepper interface {
	Backend
	// NewSteps makes room for so many layers and KV heads.
	NewSteps(layers, kvHeads int) *Steps
	// SetSteps tells what the cache holds before the next step, past [layer][kvHead],
	// and its position. StartStep keeps count from then on, so it is needed only where
	// the cache has changed otherwise.
	SetSteps(s *Steps, pos int32, past [][]KV)
	// SetStep gives the next step its token, -1 for one that is there already, and, for
	// models with sliding windows, the first entry [layers·kvHeads] that it sees.
	SetStep(s *Steps, token int32, first []int32)

	// StartStep counts the step's own position and pairs.
	StartStep(s *Steps)
	// StepGather is Gather of the step's token.
	StepGather(y, table *Tensor, s *Steps)
	// StepRoPE is RoPE of x [1, heads, headDim] at the step's position.
	StepRoPE(x *Tensor, s *Steps, table *RoPETable)
	// StepAttention appends the step's pair k, v [1, kvHeads, headDim] to a layer's heads,
	// which have room for it, and attends: out [1, heads·headDim] of q [1, heads, headDim].
	// The pairs are of type pairs. longest is the number of entries of the longest head,
	// this step's included; recorded, it serves while its EntryBucket stays. A layer with
	// a sliding window is windowed.
	StepAttention(out, q, k, v *Tensor, s *Steps, layer int, pairs DType, longest int, windowed bool, scale float64)
}

// minBucket is the least difference of buckets.
const minBucket = 256

// EntryBucket is the number of entries by which a decoding step over n entries is cut:
// the next multiple of an eighth of the power of two below n, of 256 at least. A step
// that was recorded serves while its bucket stays.
func EntryBucket(n int) int {
	if n <= minBucket {
		return minBucket
	}
	step := max(minBucket, 1<<(bits.Len(uint(n-1))-1)/8)
	return (n + step - 1) / step * step
}
