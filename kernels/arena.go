package kernels

import "runtime/debug"

// Allocator hands out tensors: a Backend (each lives as long as it is
// referenced) or an Arena (all end together).
type Allocator interface {
	// Alloc returns a tensor whose contents are undefined.
	Alloc(d DType, shape ...int) *Tensor
}

// Arena is a bump allocator for the temporaries of one pass over a model. The
// tensors handed out since a mark die at Release(mark): their memory is handed
// out again, and the Tensors themselves. It holds about as much as was in use at once
// at most. An Arena is not safe for concurrent use. Where a backend guards every
// allocation, each tensor is one of its own, so that an overrun does not stay within
// the arena.
type Arena struct {
	backend Backend
	align   int // bytes
	slabs   map[DType]*slabs
	apart   bool      // tensors are allocated one by one
	alone   []*Tensor // these
}

// ArenaLayout is how an Arena cuts the memory of a backend.
type ArenaLayout struct {
	Align int // of tensors, in bytes
	// Apart makes every tensor an allocation of its own, which Backend.Free ends: for drivers
	// that guard allocations, so that they see every overrun.
	Apart bool
}

type slabs struct {
	slabs   []*Tensor
	tensors []*Tensor // handed out so far; the first handed are alive
	position
	peak  int  // most elements in use at once
	merge bool // nothing is in use and one slab would do for what now takes several
}

// position is what is in use.
type position struct {
	slab   int // index of the slab being filled
	used   int // elements of that slab
	live   int // elements of all slabs, without what is left over at their ends
	handed int // tensors
}

// slabBytes is the least size of one slab; larger requests get a slab of their
// own size.
const slabBytes = 1 << 20

// largeArena is the size from which on merging collects what it leaves behind.
const largeArena = 16 << 20

// NewArena returns an empty arena in the memory of b.
func NewArena(b Backend) *Arena {
	layout := b.ArenaLayout()
	return &Arena{backend: b, align: layout.Align, apart: layout.Apart, slabs: make(map[DType]*slabs)}
}

// Mark is a position in an Arena. Tensors that are allocated one by one are counted
// under Invalid.
type Mark map[DType]position

// Mark returns the current position.
func (a *Arena) Mark() Mark {
	m := make(Mark, len(a.slabs))
	for d, s := range a.slabs {
		m[d] = s.position
	}
	if a.apart {
		m[Invalid] = position{used: len(a.alone)}
	}
	return m
}

// Release frees everything allocated since the mark; nil frees all.
func (a *Arena) Release(m Mark) {
	if n := m[Invalid].used; n < len(a.alone) {
		a.backend.Free(a.alone[n:])
		clear(a.alone[n:])
		a.alone = a.alone[:n]
	}
	for d, s := range a.slabs {
		s.position = m[d]
		// Larger requests than before went past the slabs that were there. A pass that
		// grows from call to call would leave a set of slabs behind for each size.
		s.merge = s.position == position{} && len(s.slabs) > 1
	}
}

// Alloc returns a tensor with undefined contents.
func (a *Arena) Alloc(d DType, shape ...int) *Tensor {
	unit := 1 // whole blocks
	if f, ok := d.Format(); ok {
		unit = f.Elems
	}
	align, slab := max(unit, a.align/4), slabBytes/d.Bytes(unit)*unit // elements, whatever their size
	n := ShapeLen(shape)
	if a.apart {
		t := a.backend.Alloc(d, shape...)
		a.alone = append(a.alone, t)
		return t
	}
	s := a.slabs[d]
	if s == nil {
		s = &slabs{}
		a.slabs[d] = s
	}
	if s.merge {
		large := d.Bytes(s.peak) >= largeArena
		s.slabs, s.merge = nil, false
		for _, t := range s.tensors { // they are dead, and would keep the old slabs
			*t = Tensor{}
		}
		if large {
			debug.FreeOSMemory() // or the old slabs would stand beside the new one
		}
		s.slabs = append(s.slabs, a.backend.Alloc(d, max(s.peak, n, slab)))
	}
	for s.slab < len(s.slabs) && s.used+n > s.slabs[s.slab].Len() {
		s.slab, s.used = s.slab+1, 0
	}
	if s.slab == len(s.slabs) {
		s.slabs = append(s.slabs, a.backend.Alloc(d, max(n, slab)))
	}
	if s.handed == len(s.tensors) {
		s.tensors = append(s.tensors, new(Tensor))
	}
	t := s.slabs[s.slab].viewInto(s.tensors[s.handed], s.used, s.used+n).withShape(shape)
	s.handed++
	whole := (n + align - 1) / align * align
	s.used, s.live = s.used+whole, s.live+whole
	s.peak = max(s.peak, s.live)
	return t
}

// Bytes is the memory that the arena holds.
func (a *Arena) Bytes() int64 {
	var n int64
	for _, s := range a.slabs {
		for _, t := range s.slabs {
			n += int64(t.Bytes())
		}
	}
	for _, t := range a.alone {
		n += int64(t.Bytes())
	}
	return n
}
