//go:build gpu && linux && amd64

package kernels

import (
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"
)

var _ Stepper = (*cuda)(nil)

func (b *cuda) NewSteps(layers, kvHeads int) *Steps {
	if size := unsafe.Sizeof(pastHead{}); size != 4*pastInts {
		panic(fmt.Sprintf("kernels: struct Past has %d bytes, want %d", size, 4*pastInts))
	}
	n := layers * kvHeads
	s := &Steps{layers: layers, kvHeads: kvHeads, header: b.Alloc(I32, 2+n), past: b.Alloc(I32, n, pastInts)}
	s.pos, s.Token, s.first = s.header.Rows(0, 1), s.header.Rows(1, 2), s.header.Rows(2, 2+n)
	return s
}

func (b *cuda) SetSteps(s *Steps, pos int32, past [][]KV) {
	const op = "SetSteps"
	if len(past) != s.layers {
		panic(fmt.Sprintf("kernels: %s: %d layers, want %d", op, len(past), s.layers))
	}
	table := NewTensor(I32, s.past.Shape...)
	heads := unsafe.Slice((*pastHead)(unsafe.Pointer(&table.i32[0])), s.layers*s.kvHeads)
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
	Convert(s.past, table)
	Convert(s.pos, fromI32([]int32{pos - 1})) // which StartStep counts up
}

func (b *cuda) SetStep(s *Steps, token int32, first []int32) {
	if len(first) != 0 && len(first) != s.first.Len() {
		panic(fmt.Sprintf("kernels: SetStep: first entries of %d heads, want %d", len(first), s.first.Len()))
	}
	switch {
	case token < 0 && len(first) > 0:
		Convert(s.first, fromI32(first))
	case token >= 0:
		Convert(s.header.Rows(1, 2+len(first)), fromI32(append([]int32{token}, first...)))
	}
}

func fromI32(data []int32) *Tensor {
	return &Tensor{DType: I32, Shape: []int{len(data)}, i32: data}
}

func (b *cuda) StartStep(s *Steps) {
	const op = "StartStep"
	b.do(op, func() {
		n := s.layers * s.kvHeads
		b.each("start_step", n, b.at(op, s.past, I32), b.at(op, s.pos, I32), n)
	})
	runtime.KeepAlive(s)
}

func (b *cuda) StepGather(y, table *Tensor, s *Steps) {
	const op = "StepGather"
	mustFit(table.Width(), y.Shape)
	name := map[DType]string{F32: "gather_f32", F64: "gather_f64", BF16: "gather_bf16", F16: "gather_f16"}[table.DType]
	if name == "" {
		panic(fmt.Sprintf("kernels: %s of a %s table", op, table.DType))
	}
	b.do(op, func() {
		b.each(name, y.Len(), b.f32(op, y), b.address(op, table), b.at(op, s.Token, I32), size(y.Len()), size(table.Width()))
	})
	runtime.KeepAlive([]*Tensor{y, table, s.Token})
}

func (b *cuda) StepRoPE(x *Tensor, s *Steps, table *RoPETable) {
	const op = "StepRoPE"
	checkRoPE(x, []int32{0}, table)
	b.do(op, func() {
		n := x.Len() / 2
		b.each("rope", n, b.f32(op, x), b.at(op, s.pos, I32), b.f32(op, table.Cos), b.f32(op, table.Sin), size(n), x.Shape[1], x.Shape[2]/2, float32(1))
	})
	runtime.KeepAlive([]*Tensor{x, s.pos, table.Cos, table.Sin})
}

func (b *cuda) StepAttention(out, q, k, v *Tensor, s *Steps, layer int, pairs DType, longest int, windowed bool, scale float64) {
	const op = "StepAttention"
	t := &attention{b: b, op: op, rows: 1, heads: q.Shape[1], kvHeads: s.kvHeads, dim: q.Shape[2], entries: longest, scale: float32(scale)}
	t.setPairs(pairs)
	own := s.kvHeads * t.dim
	if q.Shape[0] != 1 || k.Len() != own || v.Len() != own || out.Len() != q.Len() || t.heads%s.kvHeads != 0 || layer < 0 || layer >= s.layers {
		panic(fmt.Sprintf("kernels: %s: layer %d: queries %v, keys %v, values %v, output %v for %d KV heads of %d layers", op, layer, q.Shape, k.Shape, v.Shape, out.Shape, s.kvHeads, s.layers))
	}
	b.do(op, func() {
		at := cu.DevicePtr(layer * s.kvHeads)
		t.past, t.q = b.at(op, s.past, I32)+at*4*pastInts, b.f32(op, q)
		if windowed {
			t.fromPast = b.at(op, s.first, I32) + at*4
		}
		name := "append_pairs_f32"
		if t.half {
			name = "append_pairs_bf16"
		}
		b.each(name, own, t.past, b.f32(op, k), b.f32(op, v), own, t.dim)
		t.attend(b.f32(op, out), 0)
	})
	runtime.KeepAlive([]*Tensor{out, q, k, v, s.past, s.first})
}
