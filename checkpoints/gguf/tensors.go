package gguf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/checkpoints"
	"glimpse/internal/simd"
	"glimpse/kernels/formats"
)

// sized is a format whose blocks nothing reads.
func sized(name string, elems, bytes int) formats.Format {
	return formats.Format{Name: name, Blocks: simd.Blocks{Elems: elems, Bytes: bytes}}
}

// maxRank is ggml's largest number of dimensions.
const maxRank = 4

// types are ggml's tensor types by their numbers in files. Sizes are given where package formats
// has no such format: files that hold such a tensor can be read but for it. Types without any were
// given up.
var types = map[uint32]formats.Format{
	0: {Name: "F32"}, 1: {Name: "F16"}, 2: {Name: "Q4_0"}, 3: {Name: "Q4_1"}, 6: {Name: "Q5_0"}, 7: {Name: "Q5_1"}, 8: {Name: "Q8_0"},
	10: {Name: "Q2_K"}, 11: {Name: "Q3_K"}, 12: {Name: "Q4_K"}, 13: {Name: "Q5_K"}, 14: {Name: "Q6_K"},
	20: {Name: "IQ4_NL"}, 23: {Name: "IQ4_XS"}, 30: {Name: "BF16"}, 39: {Name: "MXFP4"}, 40: {Name: "NVFP4"},

	9: sized("Q8_1", 32, 40), 15: sized("Q8_K", 256, 292),
	16: sized("IQ2_XXS", 256, 66), 17: sized("IQ2_XS", 256, 74), 22: sized("IQ2_S", 256, 82),
	18: sized("IQ3_XXS", 256, 98), 21: sized("IQ3_S", 256, 110),
	19: sized("IQ1_S", 256, 50), 29: sized("IQ1_M", 256, 56),
	24: sized("I8", 1, 1), 25: sized("I16", 1, 2), 26: sized("I32", 1, 4),
	27: sized("I64", 1, 8), 28: sized("F64", 1, 8),
	34: {Name: "TQ1_0"}, 35: {Name: "TQ2_0"},
	41: sized("Q1_0", 128, 18), 42: sized("Q2_0", 64, 18),

	4: {Name: "Q4_2"}, 5: {Name: "Q4_3"}, 31: {Name: "Q4_0_4_4"}, 32: {Name: "Q4_0_4_8"}, 33: {Name: "Q4_0_8_8"},
	36: {Name: "IQ4_NL_4_4"}, 37: {Name: "IQ4_NL_4_8"}, 38: {Name: "IQ4_NL_8_8"},
}

// Tensor is a tensor of a file.
type Tensor struct {
	Name   string
	Shape  []int          // outermost first, which is the reverse of the file's order; empty for a scalar
	Format formats.Format // its name and the size of its blocks; formats.All tells whether it can be read
	Data   []byte         // its blocks, row by row; part of the file

	offset uint64 // of Data in the tensors' bytes
}

// tensorInfo reads the description of a tensor.
func (r *reader) tensorInfo() Tensor {
	t := Tensor{Name: r.string("name of a tensor")}
	if r.err == nil && !utf8.ValidString(t.Name) {
		r.keepError("tensor %.200q, want a name in valid UTF-8", t.Name)
	}
	what := fmt.Sprintf("tensor %.200q: ", t.Name)
	rank := r.uint32(what + "rank")
	if rank > maxRank {
		r.keepError(what+"rank %d, want at most %d", rank, maxRank)
		return t
	}
	elems := uint64(1)
	dims := make([]uint64, rank)
	for i := range dims {
		dims[i] = r.uint64(what + "dimension")
	}
	t.Shape = make([]int, rank)
	for i, d := range dims {
		// A zero does not excuse an overflow after it.
		if d > math.MaxInt64/max(elems, 1) {
			r.keepError(what+"number of elements of dimensions %v overflows", dims)
			return t
		}
		elems *= d
		t.Shape[len(dims)-1-i] = int(d)
	}
	number := r.uint32(what + "type")
	t.offset = r.uint64(what + "offset")
	if r.err != nil {
		return t
	}
	var ok bool
	if t.Format, ok = types[number]; !ok {
		r.keepError(what+"type %d is unknown, want one of: %s", number, strings.Join(readable(), ", "))
		return t
	}
	if known, err := formats.All.Lookup(t.Format.Name); err == nil {
		t.Format = *known
	} else if t.Format.Elems == 0 {
		r.keepError(what+"type %s was given up by llama.cpp, want one of: %s; its llama-quantize converts from the original", t.Format.Name, strings.Join(readable(), ", "))
		return t
	}
	row := uint64(1) // a scalar
	if rank > 0 {
		row = dims[0]
	}
	if row%uint64(t.Format.Elems) != 0 {
		r.keepError(what+"rows of %d elements, want a multiple of the %d of a block of %s", row, t.Format.Elems, t.Format.Name)
		return t
	}
	if blocks := elems / uint64(t.Format.Elems); blocks > math.MaxInt64/uint64(t.Format.Bytes) {
		r.keepError(what+"number of bytes of %s %v overflows", t.Format.Name, t.Shape)
	}
	return t
}

// blockBytes is the length of the tensor's blocks, which tensorInfo has seen fit into 63 bits.
func (t Tensor) blockBytes() uint64 {
	n := uint64(1)
	for _, d := range t.Shape {
		n *= uint64(d)
	}
	return n / uint64(t.Format.Elems) * uint64(t.Format.Bytes)
}

// placeTensors gives the tensors their bytes of data, which begin at an offset of the file and must be
// filled without holes or overlaps but for padding. What follows them is noted.
func (p *part) placeTensors(data []byte, begin int, alignment uint64) error {
	order := make([]*Tensor, len(p.tensors))
	for i := range order {
		order[i] = &p.tensors[i]
	}
	// Empty tensors share their offset with the next, hence the length as second key.
	slices.SortStableFunc(order, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.blockBytes(), b.blockBytes()))
	})
	end, last := uint64(0), "the metadata"
	for _, t := range order {
		n := t.blockBytes()
		switch {
		case t.offset%alignment != 0:
			return checkpoints.Corruptf("tensor %.200q: offset %d, want a multiple of general.alignment %d", t.Name, t.offset, alignment)
		case t.offset < end:
			return checkpoints.Corruptf("tensor %.200q: offset %d, want %d: an overlap with %s", t.Name, t.offset, end, last)
		case t.offset > end:
			return checkpoints.Corruptf("tensor %.200q: offset %d, want %d: a hole after %s", t.Name, t.offset, end, last)
		case n > uint64(len(data)) || t.offset > uint64(len(data))-n:
			return checkpoints.Corruptf("tensor %.200q: offset %d of %d bytes, but the file has %d after its description: it is truncated", t.Name, t.offset, n, len(data))
		}
		t.Data = data[t.offset : t.offset+n : t.offset+n]
		end, last = padded(t.offset+n, alignment), fmt.Sprintf("tensor %.200q", t.Name)
	}
	if uint64(len(data)) > end { // llama.cpp does not look there
		p.notes = append(p.notes, fmt.Sprintf("%d bytes follow %s at offset %d, which nothing reads", uint64(len(data))-end, last, uint64(begin)+end))
	}
	return nil
}

func padded(n, alignment uint64) uint64 { return (n + alignment - 1) / alignment * alignment }
