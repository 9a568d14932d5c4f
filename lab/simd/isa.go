//go:build avo

package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set: AVX2 with FMA, BMI2 and F16C, or AVX-512 F, BW, DQ, VL.
type isa struct {
	name  string // suffix of the functions
	lanes int    // float32 in a vector
}

var (
	avx2   = isa{"AVX2", 8}
	avx512 = isa{"AVX512", 16}
)

func (v isa) wide() bool       { return v.lanes == 16 }
func (v isa) vectorBytes() int { return v.lanes * 4 }

// vec returns a new vector register.
func (v isa) vec() reg.VecVirtual {
	if v.wide() {
		return ZMM()
	}
	return YMM()
}

func (v isa) vecs(n int) []reg.VecVirtual {
	r := make([]reg.VecVirtual, n)
	for i := range r {
		r[i] = v.vec()
	}
	return r
}

// zeros returns n cleared registers.
func (v isa) zeros(n int) []reg.VecVirtual {
	r := v.vecs(n)
	for _, x := range r {
		VXORPS(x, x, x)
	}
	return r
}

// function starts an assembly function of the given Go signature.
func function(name, signature string, doc ...string) {
	functionOf(attr.NOSPLIT, name, signature, doc...)
}

// functionOf is function with attributes: without NOSPLIT it may have more memory of its own.
func functionOf(attributes attr.Attribute, name, signature string, doc ...string) {
	TEXT(name, attributes, signature)
	Pragma("noescape")
	Doc(doc...)
}

func endFunction() {
	VZEROUPPER()
	RET()
}

// ifRows emits what a function of m rows of a does with so many.
func ifRows(rows int, m reg.GPVirtual, emit func()) {
	skip := fmt.Sprintf("not%d", rows)
	CMPQ(m, Imm(uint64(rows)))
	JNE(LabelRef(skip))
	emit()
	endFunction()
	Label(skip)
}

// again goes back to a label until a register has been counted down to 0.
func again(left reg.GPVirtual, label string) {
	DECQ(left)
	JNZ(LabelRef(label))
}

// pastLevel2 fetches weights by past where they are to pass the level-2 cache by, and else by into.
func pastLevel2(label string, past, into func()) {
	CMPB(NewDataAddr(Symbol{Name: "·pastLevel2"}, 0), Imm(0))
	JNE(LabelRef(label + "past"))
	into()
	JMP(LabelRef(label + "fetched"))
	Label(label + "past")
	past()
	Label(label + "fetched")
}

// rowsOfA are pointers to rows of a, lda bytes apart.
func rowsOfA(rows int) []reg.GPVirtual {
	a := []reg.GPVirtual{pointer("a")}
	for i := 1; i < rows; i++ {
		p := copyOf(a[i-1])
		ADDQ(parameter("lda"), p)
		a = append(a, p)
	}
	return a
}

// storeSum writes alpha·x + beta·c for one result, where beta's bits tell whether c is read; t is free.
func storeSum(x, t reg.Register, beta reg.GPVirtual, to reg.GPVirtual, label string) {
	VMULSS(parameter("alpha"), x, x)
	CMPL(beta, Imm(0))
	JEQ(LabelRef(label))
	VMOVSS(parameter("beta"), t)
	VFMADD231SS(Mem{Base: to}, t, x)
	Label(label)
	VMOVSS(x, Mem{Base: to})
}

// betaBits are 0 if the parameter beta is, whatever its sign.
func betaBits() reg.GPVirtual {
	beta := GP32()
	MOVL(parameter("beta"), beta)
	ADDL(beta, beta)
	return beta
}

// parameter returns the memory of a parameter.
func parameter(name string) Mem {
	c, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return c.Addr
}

// broadcast fills a new register with a float32 in memory.
func (v isa) broadcast(from Mem) reg.VecVirtual {
	r := v.vec()
	VBROADCASTSS(from, r)
	return r
}

var constants = map[string]Mem{}

// words is read-only memory with the given 32-bit words.
func words(name string, w ...uint32) Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, attr.RODATA|attr.NOPTR)
	for i, x := range w {
		DATA(4*i, U32(x))
	}
	constants[name] = m
	return m
}

// integer is a vector whose lanes all hold x, as a memory operand.
func integer(x uint32) Mem {
	w := make([]uint32, 16)
	for i := range w {
		w[i] = x
	}
	return words(fmt.Sprintf("x%08x", x), w...)
}

// constant is a vector whose lanes all hold x, as a memory operand.
func constant(x float32) Mem { return integer(math.Float32bits(x)) }

// mask selects the first lanes of a vector.
type mask struct {
	k reg.OpmaskVirtual // AVX-512
	y reg.VecVirtual    // AVX2
}

// masks returns masks for the first n lanes of consecutive vectors; n must be in
// 0 … vectors·lanes.
func (v isa) masks(n reg.GPVirtual, vectors int) []mask {
	m := make([]mask, vectors)
	if v.wide() {
		bits := GP64()
		MOVQ(I32(-1), bits)
		BZHIQ(n, bits, bits)
		for i := range m {
			m[i].k = K()
			KMOVW(bits.As32(), m[i].k)
			if i+1 < vectors {
				SHRQ(Imm(16), bits)
			}
		}
		return m
	}
	// The table holds 32 words of ones and 32 of zeros; a window that starts n words
	// before the middle has n ones.
	table := make([]uint32, 64)
	for i := range 32 {
		table[i] = math.MaxUint32
	}
	at, index := GP64(), GP64()
	LEAQ(words("maskTable", table...), at)
	MOVQ(n, index)
	NEGQ(index)
	for i := range m {
		m[i].y = YMM()
		VMOVUPS(Mem{Base: at, Index: index, Scale: 4, Disp: 128 + 32*i}, m[i].y)
	}
	return m
}

// loadLanes reads a vector of float32, or the lanes of a mask; the others become 0.
func (v isa) loadLanes(from Mem, m *mask, to reg.VecVirtual) {
	switch {
	case m == nil:
		VMOVUPS(from, to)
	case v.wide():
		VMOVUPS_Z(from, m.k, to)
	default:
		VMASKMOVPS(from, m.y, to)
	}
}

// storeLanes writes a vector, or the lanes of a mask.
func (v isa) storeLanes(from reg.VecVirtual, m *mask, to Mem) {
	switch {
	case m == nil:
		VMOVUPS(from, to)
	case v.wide():
		VMOVUPS(from, m.k, to)
	default:
		VMASKMOVPS(from, m.y, to)
	}
}

// storage is a type of elements in memory.
type storage struct {
	name string
	size int
}

var (
	f32      = storage{"F32", 4}
	bf16     = storage{"BF16", 2}
	f16      = storage{"F16", 2}
	storages = []storage{f32, bf16, f16}
)

// loadWide is load of elements that are widened to float32; masks are for AVX-512 or float32.
func (v isa) loadWide(s storage, from Mem, m *mask, to reg.VecVirtual) {
	switch {
	case s == f32:
		v.loadLanes(from, m, to)
	case s == f16 && m == nil:
		VCVTPH2PS(from, to)
	case s == f16:
		VCVTPH2PS_Z(from, m.k, to)
	case m == nil:
		VPMOVZXWD(from, to)
	default:
		VPMOVZXWD_Z(from, m.k, to)
	}
	if s == bf16 {
		VPSLLD(Imm(16), to, to)
	}
}
