package kernels_test

import (
	"math/rand/v2"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// span is the memory of a tensor.
func span(t *kernels.Tensor) (from, to uintptr) { return t.Addr(), t.Addr() + uintptr(t.Bytes()) }

// TestArenaNeverAliasesLiveTensors allocates, marks and releases at random and
// holds what is live against each other: by address, and by what was written.
func TestArenaNeverAliasesLiveTensors(t *testing.T) {
	d := kernelstest.Open(t, "cpu")
	a := kernels.NewArena(d.B)
	rng := rand.New(rand.NewPCG(1, 2))
	type live struct {
		t     *kernels.Tensor
		value float64
	}
	type mark struct {
		at kernels.Mark
		n  int
	}
	var all []live
	var marks []mark
	sizes := []int{0, 1, 15, 16, 17, 1000, 100_000, 270_000, 600_000}
	for step := range 3000 {
		switch rng.IntN(8) {
		case 0:
			marks = append(marks, mark{a.Mark(), len(all)})
		case 1:
			if len(marks) > 0 {
				i := rng.IntN(len(marks)) // any outer mark
				for _, l := range all {   // nothing live was overwritten
					if n := l.t.Len(); n > 0 && (l.t.At(0) != l.value || l.t.At(n-1) != l.value) {
						t.Fatalf("step %d: a live tensor of %d elements changed", step, n)
					}
				}
				a.Release(marks[i].at)
				all, marks = all[:marks[i].n], marks[:i]
			}
		default:
			size := sizes[min(rng.IntN(len(sizes)), rng.IntN(len(sizes)))] // the big ones seldom
			dtype := []kernels.DType{kernels.F32, kernels.F64, kernels.BF16}[rng.IntN(3)]
			x := a.Alloc(dtype, 1, size)
			if x.DType != dtype || x.Len() != size || len(x.Shape) != 2 {
				t.Fatalf("Alloc(%s, 1, %d) gave %s %v", dtype, size, x.DType, x.Shape)
			}
			from, to := span(x)
			for _, l := range all {
				if lf, lt := span(l.t); from < lt && lf < to {
					t.Fatalf("step %d: a tensor of %d elements aliases a live one of %d", step, size, l.t.Len())
				}
			}
			value := float64(step % 128) // exact in bf16
			if size > 0 {
				d.B.Fill(x.Reshape(size), value)
			}
			all = append(all, live{x, value})
		}
		if len(all) > 60 {
			a.Release(nil)
			all, marks = nil, nil
		}
	}
}

func TestArenaReusesMemory(t *testing.T) {
	d := kernelstest.Open(t, "cpu")
	a := kernels.NewArena(d.B)
	keep := a.Alloc(kernels.F32, 100)
	m := a.Mark()
	first := a.Alloc(kernels.F32, 2, 50)
	a.Release(m)
	second := a.Alloc(kernels.F32, 30)
	if first.Addr() != second.Addr() {
		t.Error("what was released is not handed out again")
	}
	if second.Addr() == keep.Addr() {
		t.Error("what came before the mark is handed out again")
	}
	if keep.Addr()%4 != 0 || (second.Addr()-keep.Addr())%64 != 0 {
		t.Error("tensors do not start at multiples of a cache line")
	}
	// A type that was first used after the mark is released to its beginning.
	m = a.Mark()
	wide := a.Alloc(kernels.F64, 10)
	a.Release(m)
	if again := a.Alloc(kernels.F64, 10); again.Addr() != wide.Addr() {
		t.Error("a type that the mark does not know is not released")
	}
	if before := a.Bytes(); before != 2<<20 {
		t.Errorf("two small types take %d bytes, want one slab of %d each", before, 1<<20)
	}
	a.Release(nil)
	if a.Alloc(kernels.F32, 1).Addr() != keep.Addr() {
		t.Error("Release(nil) does not free everything")
	}
}

// TestArenaTensorsEndAtTheirLength: writing past the end cannot reach a
// neighbour.
func TestArenaTensorsEndAtTheirLength(t *testing.T) {
	a := kernels.NewArena(kernelstest.Open(t, "cpu").B)
	x := a.Alloc(kernels.F32, 5).F32()
	if len(x) != 5 || cap(x) != 5 {
		t.Errorf("length %d, capacity %d, want 5 and 5", len(x), cap(x))
	}
}

// TestArenaHoldsWhatOnePassNeeds: passes over prompts that grow, each with one
// tensor larger than any before it, must not add up.
func TestArenaHoldsWhatOnePassNeeds(t *testing.T) {
	d := kernelstest.Open(t, "cpu")
	pass := func(a *kernels.Arena, rows int) {
		a.Release(nil)
		a.Alloc(kernels.F32, rows, 1000)
		for range 3 {
			m := a.Mark()
			for range 6 {
				a.Alloc(kernels.F32, 400, 1000)
			}
			a.Release(m)
		}
		a.Release(nil)
	}
	const longest = 4000
	once := kernels.NewArena(d.B)
	pass(once, longest)
	often := kernels.NewArena(d.B)
	for rows := 400; rows <= longest; rows += 100 {
		pass(often, rows)
	}
	if got, want := often.Bytes(), once.Bytes(); got > 2*want {
		t.Errorf("after many growing passes the arena holds %d bytes, one pass of the largest takes %d", got, want)
	}
	// Once it is large enough it stays as it is.
	pass(once, longest)
	before := once.Bytes()
	address := once.Alloc(kernels.F32, 1).Addr()
	for range 5 {
		pass(once, longest)
		pass(once, longest/2)
	}
	once.Release(nil)
	if once.Bytes() != before || once.Alloc(kernels.F32, 1).Addr() != address {
		t.Errorf("equal passes changed the arena: %d bytes, before %d", once.Bytes(), before)
	}
}
