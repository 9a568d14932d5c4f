//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("steps",
	"start_step", "append_pairs_f32", "append_pairs_bf16",
)

// cudaSteps implements Steps.
type cudaSteps struct {
	rows, layers, kvHeads int
	header                *kernels.Tensor // I32: pos, tokens and first, one after another
	pos, tokens           *kernels.Tensor // [rows]
	first                 *kernels.Tensor // [rows·layers·kvHeads]: the first entry inside the sliding window
	past                  *kernels.Tensor // I32 [rows·layers·kvHeads, pastInts], struct Past of cuda/attention.h
}

// pastInts is the size of struct Past in int32.
const pastInts = PastBytes / 4

func (s *cudaSteps) Tokens() *kernels.Tensor { return s.tokens }

func (b *cuda) NewSteps(rows, layers, kvHeads int) kernels.Steps {
	if size := unsafe.Sizeof(pastHead{}); size != 4*pastInts {
		panic(fmt.Sprintf("kernels: struct Past has %d bytes, want %d", size, 4*pastInts))
	}
	n := rows * layers * kvHeads
	s := &cudaSteps{rows: rows, layers: layers, kvHeads: kvHeads, header: b.Alloc(kernels.I32, 2*rows+n), past: b.Alloc(kernels.I32, n, pastInts)}
	s.pos, s.tokens, s.first = s.header.Rows(0, rows), s.header.Rows(rows, 2*rows), s.header.Rows(2*rows, 2*rows+n)
	kernels.Convert(s.header, kernels.NewTensor(kernels.I32, s.header.Len())) // rows without a sequence have token 0 and position 0
	return s
}

func (b *cuda) SetSteps(steps kernels.Steps, sequence int, pos int32, past [][]kernels.KV) {
	s := steps.(*cudaSteps)
	const op = "SetSteps"
	if sequence < 0 || sequence >= s.rows || len(past) != s.layers {
		panic(fmt.Sprintf("kernels: %s: sequence %d of %d layers, want 0 to %d of %d", op, sequence, len(past), s.rows-1, s.layers))
	}
	n := s.layers * s.kvHeads
	table := kernels.NewTensor(kernels.I32, n, pastInts)
	heads := unsafe.Slice((*pastHead)(unsafe.Pointer(&table.I32()[0])), n)
	b.do(op, func() {
		for l, kvs := range past {
			if len(kvs) != s.kvHeads {
				panic(fmt.Sprintf("kernels: %s: layer %d: %d KV heads, want %d", op, l, len(kvs), s.kvHeads))
			}
			for g, kv := range kvs {
				heads[l*s.kvHeads+g] = pastHead{k: b.address(op, kv.K), v: b.address(op, kv.V), entries: int32(kv.Entries())}
			}
		}
	})
	kernels.Convert(s.past.Rows(sequence*n, (sequence+1)*n), table)
	kernels.Convert(s.pos.Rows(sequence, sequence+1), fromI32([]int32{pos - 1})) // which StartStep counts up
}

func (b *cuda) SetStep(steps kernels.Steps, tokens, first []int32) {
	s := steps.(*cudaSteps)
	heads := s.layers * s.kvHeads
	if len(tokens) > s.rows || len(first) > s.first.Len() || len(first)%heads != 0 || len(first) > 0 && len(tokens) > 0 && len(first) != len(tokens)*heads {
		panic(fmt.Sprintf("kernels: SetStep: %d tokens, first entries of %d heads, want up to %d and %d for each", len(tokens), len(first), s.rows, heads))
	}
	switch {
	case len(first) > 0 && len(tokens) > 0: // in one copy
		both := make([]int32, s.rows+len(first))
		copy(both, tokens)
		copy(both[s.rows:], first)
		kernels.Convert(s.header.Rows(s.rows, s.rows+len(both)), fromI32(both))
	case len(first) > 0:
		kernels.Convert(s.first.Rows(0, len(first)), fromI32(first))
	case len(tokens) > 0:
		kernels.Convert(s.tokens.Rows(0, len(tokens)), fromI32(tokens))
	}
}

func fromI32(data []int32) *kernels.Tensor {
	t := kernels.NewTensor(kernels.I32, len(data))
	copy(t.I32(), data)
	return t
}

func (b *cuda) StartStep(steps kernels.Steps, sequences int) {
	s := steps.(*cudaSteps)
	const op = "StartStep"
	if sequences < 1 || sequences > s.rows {
		panic(fmt.Sprintf("kernels: %s: %d sequences, want 1 to %d", op, sequences, s.rows))
	}
	b.do(op, func() {
		n := sequences * s.layers * s.kvHeads
		b.each("start_step", n, b.at(op, s.past, kernels.I32), b.at(op, s.pos, kernels.I32), n, sequences)
	})
	runtime.KeepAlive(s)
}

func (b *cuda) StepGather(y, table *kernels.Tensor, steps kernels.Steps) {
	s := steps.(*cudaSteps)
	const op = "StepGather"
	kernels.MustFit(s.rows*table.Width(), y.Shape)
	b.do(op, func() { b.gather(op, b.f32(op, y), table, b.at(op, s.tokens, kernels.I32), y.Len()) })
	runtime.KeepAlive([]*kernels.Tensor{y, table, s.tokens})
}

func (b *cuda) StepRoPE(x *kernels.Tensor, steps kernels.Steps, table *kernels.RoPETable) {
	s := steps.(*cudaSteps)
	const op = "StepRoPE"
	kernels.CheckRoPE(x, x, make([]int32, s.rows), table)
	b.do(op, func() {
		b.rope(op, x, b.at(op, s.pos, kernels.I32), table, 1)
	})
	runtime.KeepAlive([]*kernels.Tensor{x, s.pos, table.Cos, table.Sin})
}

// stepAttention is StepAttention of one sequence.
func (b *cuda) stepAttention(out, q, k, v *kernels.Tensor, steps kernels.Steps, to kernels.StepLayer) {
	s := steps.(*cudaSteps)
	const op = "StepAttention"
	t := &attention{b: b, op: op, rows: 1, heads: q.Shape[1], kvHeads: s.kvHeads, dim: q.Shape[2], entries: to.Longest[0], scale: float32(to.Scale), cap: float32(to.SoftCap)}
	t.setPairs(to.Pairs)
	own := s.kvHeads * t.dim
	if q.Shape[0] != 1 || k.Len() != own || v.Len() != own || out.Len() != q.Len() || t.heads%s.kvHeads != 0 ||
		to.Layer < 0 || to.Layer >= s.layers || to.Sequence < 0 || to.Sequence >= s.rows ||
		to.Sinks != nil && to.Sinks.Len() != t.heads || to.Scores != nil && (to.Scores.Dim0() != t.heads || to.Scores.Width() < to.Longest[0]) {
		panic(fmt.Sprintf("kernels: %s: sequence %d layer %d: queries %v, keys %v, values %v, output %v for %d KV heads of %d layers of %d sequences",
			op, to.Sequence, to.Layer, q.Shape, k.Shape, v.Shape, out.Shape, s.kvHeads, s.layers, s.rows))
	}
	b.do(op, func() {
		at := cu.DevicePtr((to.Sequence*s.layers + to.Layer) * s.kvHeads)
		t.pastAt, t.q = b.at(op, s.past, kernels.I32)+at*4*pastInts, b.f32(op, q)
		t.sinks = b.f32(op, to.Sinks)
		if to.Windowed {
			t.fromPast = b.at(op, s.first, kernels.I32) + at*4
		}
		name := "append_pairs_f32"
		if t.half {
			name = "append_pairs_bf16"
		}
		if !to.Appended {
			b.each(name, own, t.pastAt, b.f32(op, k), b.f32(op, v), own, t.dim)
		}
		if to.Scores == nil {
			t.attend(b.f32(op, out), 0)
			return
		}
		if t.stepFits(b.f32(op, out)) {
			t.attendStep(b.f32(op, out), 0, b.f32(op, to.Scores), to.Scores.Width())
			return
		}
		lse := t.floats(t.heads)
		t.attend(b.f32(op, out), lse)
		t.observe(to.Scores, lse)
	})
	runtime.KeepAlive([]*kernels.Tensor{out, q, k, v, s.past, s.first, to.Scores, to.Sinks})
}
