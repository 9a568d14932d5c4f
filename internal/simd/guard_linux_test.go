package simd

import (
	"math"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

// guarded hands out memory that lies between two pages which may not be touched.
type guarded struct {
	memory []byte // readable part
	ends   bool   // slices end at the upper page instead of starting at the lower
}

func newGuarded(t *testing.T, pages int) *guarded {
	size := syscall.Getpagesize()
	all, err := syscall.Mmap(-1, 0, (pages+2)*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	for _, page := range [][]byte{all[:size], all[len(all)-size:]} {
		if err := syscall.Mprotect(page, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return &guarded{memory: all[size : len(all)-size]}
}

func guardedSlice[T float32 | uint16 | byte](g *guarded, n int) []T {
	if n == 0 {
		return nil
	}
	size := n * int(unsafe.Sizeof(*new(T)))
	if size > len(g.memory) {
		panic("guarded memory is too small")
	}
	start := &g.memory[0]
	if g.ends {
		start = &g.memory[len(g.memory)-size]
	}
	return unsafe.Slice((*T)(unsafe.Pointer(start)), n)
}

// The kernels touch nothing before or after their slices.
func TestKernelsStayInsideTheirSlices(t *testing.T) {
	// A bad access becomes a panic with a stack instead of the end of the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var memory [3]*guarded
	for i := range memory {
		memory[i] = newGuarded(t, 64)
	}
	everyLevel(t, func(t *testing.T) {
		for _, ends := range []bool{true, false} {
			for i := range memory {
				memory[i].ends = ends
			}
			for n := range 140 {
				dst, x, y := guardedSlice[float32](memory[0], n), guardedSlice[float32](memory[1], n), guardedSlice[float32](memory[2], n)
				for i := range n {
					dst[i], x[i], y[i] = 1, 1, 1
				}
				for _, c := range elementwises {
					c.run(dst, x, y)
				}
				Dot(x, y)
				Sum(x)
				Max(x)
				h := guardedSlice[uint16](memory[2], n)
				NarrowBF16(h, x)
				WidenBF16(dst, h)
				NarrowF16(h, x)
				WidenF16(dst, h)
			}
			r := newRand(5)
			for _, kind := range gemmKinds {
				for range iterations(150) {
					g := newGemmCase(kind, 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(70), r)
					if r.IntN(8) == 0 {
						g = newGemmCase(kind, 1+r.IntN(3), 1+r.IntN(10), 400+r.IntN(300), r)
					}
					placed := *g
					place := func(i int, x []float32) []float32 {
						x = x[:len(x)-3] // without the padding at the end
						s := guardedSlice[float32](memory[i], len(x))
						copy(s, x)
						return s
					}
					placed.a, placed.c = place(0, g.a), place(1, g.c)
					if kind.s == f32 {
						placed.b = place(2, g.b)
					} else {
						placed.h = guardedSlice[uint16](memory[2], len(g.h)-3)
						copy(placed.h, g.h)
					}
					// Into the guarded c itself; check compares with the case's own.
					kind.run(g.m, g.n, g.k, g.alpha, placed.a, g.lda, placed.b, placed.h, g.ldb, g.beta, placed.c, g.ldc)
					g.check(t, append(append([]float32(nil), placed.c...), g.c[len(g.c)-3:]...))
				}
			}
		}
	})
}

// The guard works: a read behind the end is caught.
func TestGuardCatchesAccess(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	g := newGuarded(t, 1)
	g.ends = true
	x := guardedSlice[float32](g, 8)
	defer func() {
		if recover() == nil {
			t.Error("reading behind the end did not fault")
		}
	}()
	if v := *offset(&x[0], 8); !math.IsNaN(float64(v)) {
		t.Errorf("read %v", v)
	}
}
