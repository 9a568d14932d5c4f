package simd

import (
	"fmt"
	"math"
	"testing"
)

// lengths cover every tail of a vector and of an unrolled loop.
func lengths() []int {
	var n []int
	for i := range 150 {
		n = append(n, i)
	}
	return append(n, 1000, 4099)
}

func TestReductions(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := newRand(1)
		for _, n := range lengths() {
			x, y := normal(r, n), normal(r, n)
			var dot, dotSize, sum, sumSize, squares float64
			largest := math.Inf(-1)
			for i := range x {
				p := float64(x[i]) * float64(y[i])
				dot += p
				dotSize += math.Abs(p)
				sum += float64(x[i])
				sumSize += math.Abs(float64(x[i]))
				squares += float64(x[i]) * float64(x[i])
				largest = max(largest, float64(x[i]))
			}
			for _, c := range []struct {
				name              string
				got               float32
				want, sizeOfTerms float64
			}{
				{"Dot", Dot(x, y), dot, dotSize},
				{"Sum", Sum(x), sum, sumSize},
				{"SumSquares", SumSquares(x), squares, squares},
				{"Max", Max(x), largest, 0},
			} {
				if float64(c.got) == c.want {
					continue
				}
				if e := math.Abs(float64(c.got) - c.want); !(e <= c.sizeOfTerms*float64(n+2)*0x1p-24) {
					t.Errorf("%s of %d elements: %v, want %v", c.name, n, c.got, c.want)
				}
			}
		}
	})
}

// A single element must count wherever it stands, and no other memory may.
func TestMaxFindsEveryPosition(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	everyLevel(t, func(t *testing.T) {
		for n := 1; n < 140; n++ {
			for at := range n {
				x := make([]float32, n+1)
				x[n] = inf // behind the end
				for i := range n {
					x[i] = -5
				}
				x[at] = -3
				if got := Max(x[:n]); got != -3 {
					t.Fatalf("n=%d at=%d: %v, want -3", n, at, got)
				}
				x[at] = nan
				if got := Max(x[:n]); got == got {
					t.Fatalf("n=%d, NaN at %d: %v, want NaN", n, at, got)
				}
			}
			x := make([]float32, n)
			for i := range x {
				x[i] = -inf
			}
			if got := Max(x); got != -inf {
				t.Fatalf("n=%d: maximum of -Inf is %v", n, got)
			}
		}
	})
}

// elementwise is one kernel that writes a slice.
type elementwise struct {
	name string
	run  func(dst, x, y []float32)
	want func(dst, x, y float64) float64
	ulps float64
}

var elementwises = []elementwise{
	{"Add", Add, func(_, x, y float64) float64 { return x + y }, 0.5},
	{"Mul", Mul, func(_, x, y float64) float64 { return x * y }, 0.5},
	{"Axpy", func(dst, x, _ []float32) { Axpy(1.7, x, dst) },
		func(dst, x, _ float64) float64 { return dst + float64(float32(1.7))*x }, math.Inf(1)},
	{"Scale", func(dst, _, _ []float32) { Scale(-0.3, dst) },
		func(dst, _, _ float64) float64 { return float64(float32(-0.3)) * dst }, 0.5},
	{"AddScalar", func(dst, _, _ []float32) { AddScalar(-0.3, dst) },
		func(dst, _, _ float64) float64 { return dst + float64(float32(-0.3)) }, 0.5},
	{"MaxInto", func(dst, x, _ []float32) { MaxInto(dst, x) },
		func(dst, x, _ float64) float64 { return max(dst, x) }, 0},
	{"Exp", func(dst, x, _ []float32) { Exp(dst, x) }, func(_, x, _ float64) float64 { return math.Exp(x) }, 2},
	{"ExpSum", func(dst, x, _ []float32) { ExpSum(dst, x, 0.25) },
		func(_, x, _ float64) float64 { return math.Exp(float64(float32(x) - 0.25)) }, 2},
	{"ExpWeights", func(dst, x, _ []float32) { ExpWeights(dst, x, -0.25) },
		func(_, x, _ float64) float64 { return math.Exp(float64(float32(x) + 0.25)) }, 2},
	{"AddExpSub", AddExpSub,
		func(dst, x, y float64) float64 { return dst + math.Exp(float64(float32(x)-float32(y))) }, math.Inf(1)},
	{"Log", func(dst, x, _ []float32) { Log(dst, x) }, func(_, x, _ float64) float64 { return math.Log(x) }, 2},
	{"SiLUMul", SiLUMul, func(_, x, y float64) float64 { return x / (1 + math.Exp(-x)) * y }, 5},
}

func TestElementwise(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for i, c := range elementwises {
			t.Run(c.name, func(t *testing.T) {
				r := newRand(uint64(i))
				for _, n := range lengths() {
					dst, x, y := normal(r, n), normal(r, n), normal(r, n)
					got := append([]float32(nil), dst...)
					c.run(got, x, y)
					for i := range got {
						want := c.want(float64(dst[i]), float64(x[i]), float64(y[i]))
						// Where terms cancel, the error is one of the terms'.
						absolute := math.Abs(float64(got[i])-want) / (math.Abs(float64(dst[i])) + math.Abs(want) + 1)
						e := ulps(got[i], want)
						if !(e <= c.ulps) || !(absolute <= 1e-6) && !math.IsNaN(want) {
							t.Fatalf("n=%d: element %d of dst=%v x=%v y=%v is %v, want %v (%.2f ulp)",
								n, i, dst[i], x[i], y[i], got[i], want, e)
						}
					}
				}
			})
		}
	})
}

// The destination may be a source.
func TestElementwiseInPlace(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := newRand(7)
		for _, n := range []int{1, 8, 31, 64, 133} {
			for _, c := range []struct {
				name string
				run  func(dst, x, y []float32)
			}{{"Add", Add}, {"Mul", Mul}, {"SiLUMul", SiLUMul},
				{"Exp", func(dst, x, _ []float32) { Exp(dst, x) }},
				{"Log", func(dst, x, _ []float32) { Log(dst, x) }},
				{"ExpSum", func(dst, x, _ []float32) { ExpSum(dst, x, 1) }},
				{"ExpWeights", func(dst, x, _ []float32) { ExpWeights(dst, x, 1) }}} {
				x, y := normal(r, n), normal(r, n)
				want := make([]float32, n)
				c.run(want, x, y)
				overX, overY := append([]float32(nil), x...), append([]float32(nil), y...)
				c.run(overX, overX, y)
				if at := sameBits(overX, want); at >= 0 {
					t.Errorf("%s n=%d: dst = x: other bits at %d", c.name, n, at)
				}
				c.run(overY, x, overY)
				if at := sameBits(overY, want); at >= 0 {
					t.Errorf("%s n=%d: dst = y: other bits at %d", c.name, n, at)
				}
			}
		}
	})
}

func TestExpSumReturnsTheSum(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := newRand(8)
		for _, n := range lengths() {
			x, dst := normal(r, n), make([]float32, n)
			got := ExpSum(dst, x, 0.5)
			var want float64
			for _, v := range dst {
				want += float64(v)
			}
			if !(math.Abs(float64(got)-want) <= want*float64(n+1)*0x1p-24) {
				t.Errorf("n=%d: %v, want the sum of the elements %v", n, got, want)
			}
		}
	})
}

// Accuracy is measured on every 509th float32 (under the race detector on fewer), all
// exponents and both signs, NaN and infinities included.
func TestExpAndLogOnAllMagnitudes(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			run  func(dst, src []float32)
			want func(float64) float64
			max  float64
		}{{"Exp", Exp, math.Exp, 2}, {"Log", Log, math.Log, 2}} {
			t.Run(c.name, func(t *testing.T) {
				step := uint64(509 * 400 / iterations(400))
				src, dst := make([]float32, 4096), make([]float32, 4096)
				worst, worstAt := 0.0, float32(0)
				for bits := uint64(0); bits < 1<<32; bits += step * uint64(len(src)) {
					for i := range src {
						src[i] = math.Float32frombits(uint32(bits + step*uint64(i)))
					}
					c.run(dst, src)
					for i, x := range src {
						if e := ulps(dst[i], c.want(float64(x))); e > worst {
							worst, worstAt = e, x
						}
					}
				}
				t.Logf("worst error %.3f ulp at %v", worst, worstAt)
				if !(worst <= c.max) {
					t.Errorf("worst error %v ulp at %v, want at most %v", worst, worstAt, c.max)
				}
			})
		}
	})
}

func TestSpecialValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	// At every place of a vector and in tails; all places must agree.
	two := func(f func(dst, x, y []float32)) func(a, b float32) float32 {
		return func(a, b float32) float32 {
			dst := []float32{0}
			f(dst, []float32{a}, []float32{b})
			first := dst[0]
			for at := range 90 {
				x, y, dst := make([]float32, 90), make([]float32, 90), make([]float32, 90)
				x[at], y[at] = a, b
				f(dst, x, y)
				if math.Float32bits(dst[at]) != math.Float32bits(first) && first == first {
					t.Errorf("element %d is %v, alone %v", at, dst[at], first)
				}
			}
			return first
		}
	}
	one := func(f func(dst, src []float32)) func(a, b float32) float32 {
		return two(func(dst, x, _ []float32) { f(dst, x) })
	}
	maxInto := two(func(dst, x, y []float32) { copy(dst, x); MaxInto(dst, y) })
	everyLevel(t, func(t *testing.T) {
		for _, c := range []struct {
			name       string
			f          func(x, y float32) float32
			x, y, want float32
		}{
			{"Exp", one(Exp), -inf, 0, 0},
			{"Exp", one(Exp), inf, 0, inf},
			{"Exp", one(Exp), nan, 0, nan},
			{"Exp", one(Exp), 0, 0, 1},
			{"Exp", one(Exp), -1e30, 0, 0},
			{"Exp", one(Exp), 1e30, 0, inf},
			{"Exp", one(Exp), 88.8, 0, inf},
			{"Exp", one(Exp), -104, 0, 0},
			{"Log", one(Log), 0, 0, -inf},
			{"Log", one(Log), float32(math.Copysign(0, -1)), 0, -inf},
			{"Log", one(Log), 1, 0, 0},
			{"Log", one(Log), inf, 0, inf},
			{"Log", one(Log), -inf, 0, nan},
			{"Log", one(Log), -1, 0, nan},
			{"Log", one(Log), nan, 0, nan},
			{"SiLUMul", two(SiLUMul), -200, 1, 0},
			{"SiLUMul", two(SiLUMul), 200, 3, 600},
			{"SiLUMul", two(SiLUMul), nan, 3, nan},
			{"SiLUMul", two(SiLUMul), 1, nan, nan},
			{"MaxInto", maxInto, nan, 1, nan},
			{"MaxInto", maxInto, 1, nan, nan},
			{"MaxInto", maxInto, -inf, -inf, -inf},
			{"MaxInto", maxInto, 2, 3, 3},
			{"MaxInto", maxInto, 3, 2, 3},
		} {
			got := c.f(c.x, c.y)
			if got != c.want && (got == got || c.want == c.want) {
				t.Errorf("%s(%v, %v) = %v, want %v", c.name, c.x, c.y, got, c.want)
			}
		}
	})
}

func TestEmptySlices(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for _, x := range [][]float32{nil, {}} {
			if Dot(x, x) != 0 || Sum(x) != 0 || SumSquares(x) != 0 || ExpSum(x, x, 1) != 0 || ExpWeights(x, x, 1) != 0 || !math.IsInf(float64(Max(x)), -1) {
				t.Error("wrong result of an empty reduction")
			}
			for _, c := range elementwises {
				c.run(x, x, x)
			}
		}
	})
}

func TestVectorPanics(t *testing.T) {
	a, b := make([]float32, 4), make([]float32, 3)
	h := make([]uint16, 5)
	for _, c := range []struct {
		want string
		run  func()
	}{
		{"simd.Dot: length of y is 3, want 4", func() { Dot(a, b) }},
		{"simd.Axpy: length of y is 3, want 4", func() { Axpy(1, a, b) }},
		{"simd.Add: length of y is 3, want 4", func() { Add(a, a, b) }},
		{"simd.Mul: length of x is 4, want 3", func() { Mul(b, a, b) }},
		{"simd.Exp: length of src is 3, want 4", func() { Exp(a, b) }},
		{"simd.ExpSum: length of src is 3, want 4", func() { ExpSum(a, b, 0) }},
		{"simd.ExpWeights: length of src is 3, want 4", func() { ExpWeights(a, b, 0) }},
		{"simd.Log: length of src is 3, want 4", func() { Log(a, b) }},
		{"simd.AddExpSub: length of shift is 3, want 4", func() { AddExpSub(a, a, b) }},
		{"simd.SiLUMul: length of up is 3, want 4", func() { SiLUMul(a, a, b) }},
		{"simd.MaxInto: length of src is 3, want 4", func() { MaxInto(a, b) }},
		{"simd.WidenBF16: length of src is 5, want 4", func() { WidenBF16(a, h) }},
		{"simd.NarrowF16: length of src is 4, want 5", func() { NarrowF16(h, a) }},
	} {
		mustPanic(t, c.want, c.run)
	}
}

func BenchmarkVector(b *testing.B) {
	for _, n := range []int{128, 2048} {
		x, y, dst := make([]float32, n), make([]float32, n), make([]float32, n)
		h := make([]uint16, n)
		for i := range x {
			x[i], y[i] = -float32(i%17), 1
		}
		for _, c := range []struct {
			name string
			run  func()
		}{
			{"Dot", func() { Dot(x, y) }}, {"Sum", func() { Sum(x) }}, {"Max", func() { Max(x) }},
			{"Axpy", func() { Axpy(0, x, dst) }}, {"Add", func() { Add(dst, x, y) }}, {"MaxInto", func() { MaxInto(dst, x) }},
			{"Exp", func() { Exp(dst, x) }}, {"ExpSum", func() { ExpSum(dst, x, 0) }}, {"ExpWeights", func() { ExpWeights(dst, x, 0) }}, {"Log", func() { Log(dst, y) }},
			{"SiLUMul", func() { SiLUMul(dst, x, y) }}, {"AddExpSub", func() { AddExpSub(dst, x, y) }},
			{"WidenBF16", func() { WidenBF16(dst, h) }}, {"NarrowBF16", func() { NarrowBF16(h, x) }},
			{"WidenF16", func() { WidenF16(dst, h) }}, {"NarrowF16", func() { NarrowF16(h, x) }},
		} {
			b.Run(fmt.Sprintf("%s/n=%d", c.name, n), func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					c.run()
				}
			})
		}
	}
}

// TestExpFloors: ExpSum is right down to the least normal number and ExpWeights down to
// e⁻⁴⁰, as is AddExpSub; below they are exactly 0, at every place of a vector, and NaN is
// not swallowed.
func TestExpFloors(t *testing.T) {
	const normal, nothing = -87.33654, -40 // float32(normal) is the least one with e^x ≥ 2⁻¹²⁶
	below := func(x float32) float32 { return math.Nextafter32(x, -1e9) }
	values := []float32{-39.9, nothing, below(nothing), -60, -87, normal, below(normal), -90, -104, -200, 0, -1, float32(math.Inf(-1))}
	for x := float32(0); x > -95; x -= 0.0137 {
		values = append(values, x)
	}
	everyLevel(t, func(t *testing.T) {
		for _, f := range []struct {
			name  string
			floor float32
			run   func(dst, src []float32)
		}{
			{"ExpSum", normal, func(dst, src []float32) { ExpSum(dst, src, 0) }},
			{"ExpSum of differences", normal, func(dst, src []float32) {
				for i, x := range src {
					dst[i] = x + 16 // exact: both are multiples of 2⁻¹⁷
				}
				ExpSum(dst, dst, 16)
			}},
			{"ExpWeights", nothing, func(dst, src []float32) { ExpWeights(dst, src, 0) }},
			{"AddExpSub", nothing, func(dst, src []float32) { clear(dst); AddExpSub(dst, src, make([]float32, len(src))) }},
		} {
			for _, n := range []int{1, 7, 16, 33, 100} {
				for at := 0; at < len(values); at += n {
					src := make([]float32, n)
					for i := range src {
						x := values[(at+i)%len(values)]
						if f.name == "ExpSum of differences" {
							x = float32(math.Ldexp(math.Round(math.Ldexp(float64(x), 17)), -17))
						}
						src[i] = x
					}
					dst := make([]float32, n)
					f.run(dst, src)
					for i, x := range src {
						want := math.Exp(float64(x))
						if x < f.floor {
							want = 0
						}
						if e := ulps(dst[i], want); !(e <= 2) || want == 0 && dst[i] != 0 {
							t.Fatalf("%s: term %d of %d: exp(%v) = %v, want %v (%.2f ulp)", f.name, i, n, x, dst[i], want, e)
						}
						if dst[i] != 0 && dst[i] < 0x1p-126 {
							t.Fatalf("%s: exp(%v) = %v is subnormal", f.name, x, dst[i])
						}
					}
				}
				src, dst := make([]float32, n), make([]float32, n)
				src[n-1] = float32(math.NaN())
				if f.run(dst, src); dst[n-1] == dst[n-1] {
					t.Fatalf("%s: NaN is lost in %d terms: %v", f.name, n, dst[n-1])
				}
			}
		}
		for _, sum := range []func(dst, src []float32, shift float32) float32{ExpSum, ExpWeights} {
			if s := sum(make([]float32, 3), []float32{1, float32(math.NaN()), 2}, 0); s == s {
				t.Errorf("NaN is lost in a sum: %v", s)
			}
		}
	})
}
