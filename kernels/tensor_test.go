package kernels_test

import (
	"math"
	"testing"
	"unsafe"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

func TestTensorViews(t *testing.T) {
	x := kernels.FromF32([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 3, 2, 2)
	rows := x.Rows(1, 3)
	if rows.Dim0() != 2 || rows.Width() != 4 || rows.At(0) != 4 || cap(rows.F32()) != 8 {
		t.Errorf("Rows(1, 3) is %v of %v, capacity %d", rows.F32(), rows.Shape, cap(rows.F32()))
	}
	rows.F32()[0] = 40
	if x.At(4) != 40 {
		t.Error("a view does not share the memory")
	}
	if r := x.Reshape(6, 2); r.Addr() != x.Addr() || r.Width() != 2 {
		t.Error("Reshape does not view the same memory")
	}
	if e := x.Rows(3, 3); e.Len() != 0 || e.Addr() != 0 {
		t.Errorf("no rows have %d elements", e.Len())
	}
	scalar := kernels.NewTensor(kernels.F64)
	if scalar.Len() != 1 || scalar.Bytes() != 8 {
		t.Errorf("a scalar has %d elements", scalar.Len())
	}
}

func TestTensorMisusePanics(t *testing.T) {
	x := kernels.NewTensor(kernels.F32, 2, 3)
	for name, f := range map[string]func(){
		"other type":         func() { x.F64() },
		"bits of an F32":     func() { x.U16() },
		"reshape":            func() { x.Reshape(5) },
		"wrap":               func() { kernels.FromF32(make([]float32, 5), 2, 3) },
		"negative extent":    func() { kernels.NewTensor(kernels.F32, -1) },
		"invalid type":       func() { kernels.NewTensor(kernels.Invalid, 1) },
		"convert lengths":    func() { kernels.Convert(x, kernels.NewTensor(kernels.F64, 5)) },
		"rows past the end":  func() { x.Rows(1, 3) },
		"store into float16": func() { kernels.Convert(kernels.NewTensor(kernels.F16, 6), x) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestDTypes(t *testing.T) {
	for _, d := range []kernels.DType{kernels.F64, kernels.F32, kernels.BF16, kernels.F16, kernels.I32} {
		if got, err := kernels.ParseDType(d.String()); got != d || err != nil {
			t.Errorf("ParseDType(%q) = %v, %v", d.String(), got, err)
		}
	}
	for _, s := range []string{"", "f32", "I64", "invalid"} {
		if _, err := kernels.ParseDType(s); err == nil {
			t.Errorf("ParseDType(%q) accepts it", s)
		}
	}
	// Every bf16 and f16 pattern, against their definition: sign, exponent, mantissa.
	decode := func(h uint16, exponentBits, mantissaBits int) float64 {
		mantissa, bias := int(h)&(1<<mantissaBits-1), 1<<(exponentBits-1)-1
		exponent := int(h) >> mantissaBits & (1<<exponentBits - 1)
		sign := 1 - 2*float64(h>>15)
		switch exponent {
		case 0:
			return sign * math.Ldexp(float64(mantissa), 1-bias-mantissaBits)
		case 1<<exponentBits - 1:
			if mantissa != 0 {
				return math.NaN()
			}
			return math.Inf(int(sign))
		}
		return sign * math.Ldexp(float64(1<<mantissaBits+mantissa), exponent-bias-mantissaBits)
	}
	same := func(a, b float64) bool { return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b }
	for i := range 1 << 16 {
		h := uint16(i)
		if got, want := float64(formats.F16ToF32(h)), decode(h, 5, 10); !same(got, want) {
			t.Fatalf("F16ToF32(%#04x) = %v, want %v", h, got, want)
		}
		if got, want := float64(formats.BF16ToF32(h)), decode(h, 8, 7); !same(got, want) {
			t.Fatalf("BF16ToF32(%#04x) = %v, want %v", h, got, want)
		}
		f := formats.BF16ToF32(h)
		if back := formats.F32ToBF16(f); back != h && f == f {
			t.Fatalf("bf16 %#04x comes back as %#04x", h, back)
		}
	}
	for f, want := range map[float32]uint16{1: 0x3f80, 1.00390625: 0x3f80, 1.01171875: 0x3f82, math.MaxFloat32: 0x7f80, float32(math.Inf(-1)): 0xff80} {
		if got := formats.F32ToBF16(f); got != want {
			t.Errorf("F32ToBF16(%v) = %#04x, want %#04x", f, got, want)
		}
	}
	if got := formats.F32ToBF16(math.Float32frombits(0x7f800001)); got != 0x7fc0 {
		t.Errorf("the bf16 of a NaN is %#04x, want a NaN", got)
	}
}

func TestFromBytes(t *testing.T) {
	buffer := make([]float64, 9) // aligned
	data := unsafe.Slice((*byte)(unsafe.Pointer(&buffer[0])), 72)
	for i := range data {
		data[i] = byte(7 * i)
	}
	for _, d := range []kernels.DType{kernels.F64, kernels.F32, kernels.BF16, kernels.F16, kernels.I32} {
		aligned, err := kernels.FromBytes(d, data[:8*d.Size()], 2, 4)
		if err != nil {
			t.Fatal(err)
		}
		if aligned.Addr() != uintptr(unsafe.Pointer(&data[0])) {
			t.Errorf("%s: aligned data was copied", d)
		}
		odd := make([]byte, 8*d.Size()+1)
		copy(odd[1:], data)
		moved, err := kernels.FromBytes(d, odd[1:], 2, 4)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			if x, y := aligned.At(i), moved.At(i); x != y && x == x {
				t.Errorf("%s: element %d is %v, unaligned %v", d, i, x, y)
			}
		}
		if _, err := kernels.FromBytes(d, data[:7*d.Size()], 2, 4); err == nil {
			t.Errorf("%s: too few bytes accepted", d)
		}
		if e, err := kernels.FromBytes(d, nil, 0, 4); err != nil || e.Len() != 0 {
			t.Errorf("%s: empty tensor: %v", d, err)
		}
	}
}
