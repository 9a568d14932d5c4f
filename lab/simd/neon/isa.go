package main

import "fmt"

// Encodings of the Arm Architecture Reference Manual, C7.2, for four lanes of 32 bits
// or sixteen bytes, without registers.
var threeRegisters = map[string]uint32{
	"fadd": 0x4e20d400, "fsub": 0x4ea0d400, "fmul": 0x6e20dc00, "fdiv": 0x6e20fc00,
	"fmax": 0x4e20f400, "fmin": 0x4ea0f400, "fmla": 0x4e20cc00, "fmls": 0x4ea0cc00,
	"faddp": 0x6e20d400, "fcmgt": 0x6ea0e400, "fcmeq": 0x4e20e400,
	"and": 0x4e201c00, "bic": 0x4e601c00, "orr": 0x4ea01c00, "bit": 0x6ea01c00,
	"add": 0x4ea08400, "sub": 0x6ea08400,
	"trn1": 0x4e802800, "trn2": 0x4e806800, "zip1.2d": 0x4ec03800, "zip2.2d": 0x4ec07800,
	"fadd.s":  0x1e202800, // one lane; the others become 0
	"add.16b": 0x4e208400, "sub.16b": 0x6e208400, "ushl.16b": 0x6e204400, "cmtst": 0x4e208c00, "zip1.16b": 0x4e003800,
	"sdot": 0x4e809400, "smax": 0x4ea06400, "cmgt": 0x4ea03400,
}

var twoRegisters = map[string]uint32{
	"frintn": 0x4e218800, "fcvtns": 0x4e21a800, "scvtf": 0x4e21d800, "fneg": 0x6ea0f800,
	"fmaxv": 0x6e30f800, "faddp.s": 0x7e30d800, "dup": 0x4e040400,
	"shll16": 0x2e613800, "shll16.2": 0x6e613800, // bfloat16 to float32: the lower or upper four
	"fcvtl": 0x0e217800, "fcvtl.2": 0x4e217800, // half precision to float32
	"fcvtn": 0x0e216800, "fcvtn.2": 0x4e216800, // and back
	"sshll.8h": 0x0f08a400, "sshll2.8h": 0x4f08a400, "sshll.4s": 0x0f10a400, "sshll2.4s": 0x4f10a400, // twice as wide
	"sqxtn.4h": 0x0e614800, "sqxtn2.8h": 0x4e614800, "sqxtn.8b": 0x0e214800, "sqxtn2.16b": 0x4e214800, // half as wide
	"fabs": 0x4ea0f800, "smaxv": 0x4eb0a800, "saddlp.8h": 0x4e202800, "saddlv.s": 0x4e703800,
	"shrn16": 0x0f108400, "shrn16.2": 0x4f108400, // the upper halves of words
}

func lookup(table map[string]uint32, name string) uint32 {
	code, ok := table[name]
	if !ok {
		panic("neon: no encoding of " + name)
	}
	return code
}

func (s *assembly) emitWord(code uint32, format string, args ...any) {
	s.do("WORD $0x%08x // %s", code, fmt.Sprintf(format, args...))
}

// op3 is d = op(n, m), for fmla, fmls and bit with d as a third operand.
func (s *assembly) op3(name string, d, n, m int) {
	if name == "tbl" { // bytes of n by the indices m
		s.emitWord(0x4e000000|uint32(m<<16|n<<5|d), "tbl v%d, {v%d}, v%d", d, n, m)
		return
	}
	s.emitWord(lookup(threeRegisters, name)|uint32(m<<16|n<<5|d), "%s v%d, v%d, v%d", name, d, n, m)
}

func (s *assembly) op2(name string, d, n int) {
	s.emitWord(lookup(twoRegisters, name)|uint32(n<<5|d), "%s v%d, v%d", name, d, n)
}

func (s *assembly) move(d, n int) { s.op3("orr", d, n, n) }

func (s *assembly) zero(d int) { s.do("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d) }

// fmlaLane is d += n · m[lane].
func (s *assembly) fmlaLane(d, n, m, lane int) {
	l, h := lane&1, lane>>1
	s.emitWord(0x4f801000|uint32(l<<21|m<<16|h<<11|n<<5|d), "fmla v%d, v%d, v%d[%d]", d, n, m, lane)
}

// shift of words by a constant.
func (s *assembly) shiftLeft(d, n, by int) {
	s.emitWord(0x4f005400|uint32((32+by)<<16|n<<5|d), "shl v%d, v%d, %d", d, n, by)
}

func (s *assembly) shiftRight(d, n, by int) {
	s.emitWord(0x4f000400|uint32((64-by)<<16|n<<5|d), "sshr v%d, v%d, %d", d, n, by)
}

func (s *assembly) shiftRightUnsigned(d, n, by int) {
	s.emitWord(0x6f000400|uint32((64-by)<<16|n<<5|d), "ushr v%d, v%d, %d", d, n, by)
}

// Loads and stores of 2, 4, 8 or 16 bytes; a load clears the rest of the register.
var memory = map[int]struct {
	load, store uint32
	letter      string
}{
	2: {0x7d400000, 0x7d000000, "h"}, 4: {0xbd400000, 0xbd000000, "s"},
	8: {0xfd400000, 0xfd000000, "d"}, 16: {0x3dc00000, 0x3d800000, "q"},
}

func (s *assembly) loadRegister(size, v, base, offset int) {
	m := memory[size]
	s.emitWord(m.load|uint32(offset/size<<10|base<<5|v), "ldr %s%d, [x%d, %d]", m.letter, v, base, offset)
}

func (s *assembly) storeRegister(size, v, base, offset int) {
	m := memory[size]
	s.emitWord(m.store|uint32(offset/size<<10|base<<5|v), "str %s%d, [x%d, %d]", m.letter, v, base, offset)
}

// loadAll loads a float32 into all lanes.
func (s *assembly) loadAll(v, base int) {
	s.emitWord(0x4d40c800|uint32(base<<5|v), "ld1r v%d, [x%d]", v, base)
}

// constant loads bits into all lanes, by way of R26.
func (s *assembly) constant(v int, bits uint32) {
	s.do("MOVD $0x%08x, R26", bits)
	s.do("VDUP R26, V%d.S4", v)
}

// rest ends a function of tiles: the label "rest", and a tile of the rows that are left by register m.
func (s *assembly) rest(maxRows, m int, tile func(rows int)) {
	s.placeLabel("rest")
	for rows := maxRows - 1; rows > 0; rows-- {
		skip := s.newLabel("not")
		s.do("CMP $%d, R%d", rows, m)
		s.do("BNE %s", skip)
		tile(rows)
		s.ret()
		s.placeLabel(skip)
	}
	s.ret()
}
