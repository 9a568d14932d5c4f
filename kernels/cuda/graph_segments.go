//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("steps_choose",
	"append_step_f32", "append_step_bf16",
)

// operation is a launch that was prepared; without a kernel it copies slots[2] bytes from
// slots[1] to slots[0].
type operation struct {
	name            string
	kernel          cu.Function
	grid            [3]int
	threads, shared int
	slots           []uint64
}

func (o *operation) same(p *operation) bool {
	return o.name == p.name && o.grid == p.grid && o.threads == p.threads && o.shared == p.shared && slices.Equal(o.slots, p.slots)
}

// segment is operations of a graph whose lists change from replay to replay.
type segment struct {
	memory *segmentsMemory
	ops    []operation // as they were prepared
	made   []operation // as they were recorded
	keep   []*cudaBlock
	// Memory is handed out in the order of the calls, so that the same calls get the same.
	tensors []*cudaBlock
	pieces  []cudaMemory // of an exact device
	taken   [2]int       // tensors, pieces
}

// segmentsMemory is what the driver holds for all segments of a graph. Their operations run one
// after another, so that temporary memory serves them all.
type segmentsMemory struct {
	segments []*segment
	scratch  cudaMemory
	used     int64
	staging  cudaMemory
	filled   int64
	lists    []staged // that go to the device before a replay
	host     []byte   // of the first one, used again
	// stale is what the operations before may use and later ones do not; old was stale
	// when the segments were last prepared anew, and is freed once they are recorded.
	stale, old []cudaMemory
}

func (m *segmentsMemory) segment(i int) *segment {
	for len(m.segments) <= i {
		m.segments = append(m.segments, &segment{memory: m})
	}
	return m.segments[i]
}

// renew begins the lists of a new replay.
func (m *segmentsMemory) renew() {
	m.lists, m.filled = m.lists[:0], 0
	m.old, m.stale = append(m.old, m.stale...), nil
}

// free gives everything to temps.
func (m *segmentsMemory) free(temps []cudaMemory) []cudaMemory {
	temps = append(append(temps, m.stale...), m.old...)
	for _, block := range []cudaMemory{m.scratch, m.staging} {
		if block.at != 0 {
			temps = append(temps, block)
		}
	}
	for _, p := range m.segments {
		temps = append(temps, p.pieces...)
	}
	*m = segmentsMemory{}
	return temps
}

// piece is memory of its own for an exact device.
func (p *segment) piece(b *cuda, op string, bytes int64) cu.DevicePtr {
	i := p.taken[1]
	p.taken[1]++
	if i < len(p.pieces) && p.pieces[i].size == bytes {
		return p.pieces[i].at
	}
	fresh := cudaMemory{b.secure(op, bytes), bytes}
	if i < len(p.pieces) {
		p.memory.stale = append(p.memory.stale, p.pieces[i])
		p.pieces[i] = fresh
	} else {
		p.pieces = append(p.pieces, fresh)
	}
	return fresh.at
}

// grown is block, or a larger one in its place where that is too small.
func (m *segmentsMemory) grown(b *cuda, op string, block *cudaMemory, need, least int64) bool {
	if need <= block.size {
		return false
	}
	size := max(2*block.size, need, least)
	at := b.secure(op, size)
	if block.at != 0 {
		m.stale = append(m.stale, *block)
	}
	*block = cudaMemory{at, size}
	return true
}

func (p *segment) temporary(b *cuda, op string, bytes int64) cu.DevicePtr {
	m := p.memory
	if b.exact {
		return p.piece(b, op, bytes)
	}
	bytes = (bytes + 255) / 256 * 256
	if m.grown(b, op, &m.scratch, m.used+bytes, 1<<16) {
		m.used = 0
	}
	at := m.scratch.at + cu.DevicePtr(m.used)
	m.used += bytes
	return at
}

// listRoom is the room for a list, so that one that grows seldom moves those after it.
func listRoom(bytes int64) int64 {
	step := int64(256)
	if bytes > step {
		step = max(step, 1<<(bits.Len64(uint64(bytes-1))-1)/8)
	}
	return (bytes + step - 1) / step * step
}

func (p *segment) upload(b *cuda, op string, data []byte) cu.DevicePtr {
	m := p.memory
	bytes := listRoom(int64(len(data)))
	if b.exact {
		at := p.piece(b, op, int64(len(data)))
		m.lists = append(m.lists, staged{at, slices.Clone(data)})
		return at
	}
	if m.grown(b, op, &m.staging, m.filled+bytes, 1<<16) {
		m.filled = 0
	}
	if m.filled == 0 { // another block
		m.lists = append(m.lists, staged{m.staging.at, m.host[:0]})
		m.host = nil
	}
	at := m.staging.at + cu.DevicePtr(m.filled)
	all := &m.lists[len(m.lists)-1]
	all.data = append(append(all.data, make([]byte, int(m.filled)-len(all.data))...), data...)
	m.filled += bytes
	return at
}

// tensor is memory for a tensor, the same as at the last preparation where it has the
// same size.
func (p *segment) tensor(b *cuda, d kernels.DType, shape []int) *kernels.Tensor {
	i := p.taken[0]
	p.taken[0]++
	if i < len(p.tensors) && p.tensors[i].size == b.class(int64(d.Bytes(kernels.ShapeLen(shape)))) {
		return kernels.NewInBlock(d, p.tensors[i], shape...)
	}
	b.segment = nil
	fresh := b.Alloc(d, shape...)
	b.segment = p
	block, _ := fresh.Block()
	m := block.(*cudaBlock)
	if i < len(p.tensors) {
		p.tensors[i] = m
	} else {
		p.tensors = append(p.tensors, m)
	}
	return fresh
}

// mustNotPrepare ends the preparation of work that can only be recorded.
func (b *cuda) mustNotPrepare(op string) {
	if b.segment != nil {
		panic(&kernels.DeviceError{Device: b.device, Op: op, Err: errors.New("products cannot be prepared for a graph")})
	}
}

// queueOperation queues what was prepared.
func (b *cuda) queueOperation(o *operation) {
	if o.kernel == (cu.Function{}) {
		b.try(o.name, cu.MemcpyDtoDAsync(cu.DevicePtr(o.slots[0]), cu.DevicePtr(o.slots[1]), int64(o.slots[2]), b.queue()))
	} else {
		pointers := make([]unsafe.Pointer, len(o.slots))
		for i := range o.slots {
			pointers[i] = unsafe.Pointer(&o.slots[i])
		}
		b.try(o.name, o.kernel.Launch(o.grid[0], o.grid[1], o.grid[2], o.threads, 1, 1, o.shared, b.queue(), pointers))
	}
	b.note(o.name)
}

// send queues the copies of lists.
func (b *cuda) send(lists []staged) {
	for _, s := range lists {
		b.copyIn("Graph", s.at, s.data)
	}
}

// queued lets go of tensors that only lists name: a cache may end before the next preparation.
func (m *segmentsMemory) queued() {
	for _, p := range m.segments {
		p.keep = nil
	}
}

// send queues the copies of the segments' lists, once.
func (m *segmentsMemory) send(b *cuda) {
	b.send(m.lists)
	if len(m.lists) > 0 && !b.exact {
		m.host = m.lists[0].data // it is copied
	}
	m.lists = m.lists[:0]
}

func (g *cudaGraph) Prepare(i int, f func() error) error {
	b, m := g.session, &g.memory.segments
	if i == 0 {
		m.renew()
	}
	p := m.segment(i)
	p.ops, p.keep, p.taken = nil, p.keep[:0], [2]int{}
	b.segment = p
	defer func() { b.segment = nil }()
	return f()
}

func (g *cudaGraph) Prepared() bool {
	if g.recorded == nil {
		return false
	}
	for _, p := range g.memory.segments.segments {
		if !slices.EqualFunc(p.ops, p.made, func(x, y operation) bool { return x.same(&y) }) {
			return false
		}
	}
	return true
}

func (g *cudaGraph) Segment(i int) {
	b, p := g.session, g.memory.segments.segment(i)
	b.do("Graph", func() {
		if b.rec == nil { // without a graph
			if i == 0 {
				g.memory.segments.send(b)
			}
		} else {
			p.made = p.ops
			b.rec.keep = append(b.rec.keep, p.held()...)
		}
		for j := range p.ops {
			b.queueOperation(&p.ops[j])
		}
	})
	if b.rec == nil {
		p.keep = nil
	}
}

// freeOld frees what only a recording before has used; the driver waits for it.
func (g *cudaGraph) freeOld() {
	m, b := &g.memory.segments, g.session
	if len(m.old) == 0 {
		return
	}
	b.do("Graph", func() {
		for _, t := range m.old {
			b.giveBack("Graph", t)
		}
	})
	m.old = nil
}

// held are the blocks that the operations were given by address. Those that are only
// named in lists, such as the keys of a cache, may go once the lists name others.
func (p *segment) held() (held []*cudaBlock) {
	for i, m := range p.keep {
		if slices.Contains(p.keep[:i], m) {
			continue
		}
		inside := func(slot uint64) bool { return slot >= uint64(m.at) && slot < uint64(m.at)+uint64(m.size) }
		if slices.ContainsFunc(p.ops, func(o operation) bool { return slices.ContainsFunc(o.slots, inside) }) {
			held = append(held, m)
		}
	}
	return held
}

// stepAppend appends a pair and copies the queries to to.
func (b *cuda) stepAppend(to, q, k, v *kernels.Tensor, steps kernels.Steps, at kernels.StepLayer) {
	s := steps.(*cudaSteps)
	const op = "StepAttention"
	own := k.Len()
	if to.Len() != q.Len() || own == 0 || own%s.kvHeads != 0 || v.Len() != own || at.Layer < 0 || at.Layer >= s.layers || at.Sequence < 0 || at.Sequence >= s.rows {
		panic(fmt.Sprintf("kernels: %s: sequence %d layer %d: queries %v to %v, keys %v, values %v for %d KV heads of %d layers of %d sequences",
			op, at.Sequence, at.Layer, q.Shape, to.Shape, k.Shape, v.Shape, s.kvHeads, s.layers, s.rows))
	}
	name := "append_step_f32"
	if at.Pairs == kernels.BF16 {
		name = "append_step_bf16"
	}
	b.do(op, func() {
		past := b.at(op, s.past, kernels.I32) + cu.DevicePtr((at.Sequence*s.layers+at.Layer)*s.kvHeads*4*pastInts)
		b.each(name, max(own, q.Len()), past, b.f32(op, k), b.f32(op, v), b.f32(op, to), b.f32(op, q), own, q.Len(), own/s.kvHeads)
	})
	runtime.KeepAlive([]*kernels.Tensor{to, q, k, v, s.past})
}
