package quantized

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"glimpse/kernels"
)

// gptq is the layout of AutoGPTQ and gptqmodel, transposed: X.qweight I32 [in/n, out] holds the codes
// of n neighbouring inputs in a word, the first in the low bits; X.qzeros I32 [groups, out/n] the zero
// points of n neighbouring outputs, less one each in version 1; X.scales [groups, out]; X.g_idx I32 [in]
// the group of each input.
type gptq struct {
	Bits   int    `json:"bits"`
	Group  int    `json:"group_size"` // -1: all inputs
	Order  bool   `json:"desc_act"`
	Format string `json:"checkpoint_format"`
	Older  string `json:"format"` // the same key in files of transformers
	Marlin bool   `json:"is_marlin_format"`
}

func init() {
	methods.Add("gptq", func(raw json.RawMessage) (scheme, error) {
		c := gptq{Group: 128}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, err
		}
		c.Format = cmp.Or(c.Format, c.Older)
		switch {
		case c.Bits != 2 && c.Bits != 4 && c.Bits != 8:
			return nil, fmt.Errorf("bits: got %d, want 2, 4 or 8", c.Bits)
		case c.Group < 1 && c.Group != -1:
			return nil, fmt.Errorf("group_size: got %d, want at least 1, or -1", c.Group)
		case c.Format != "" && c.Format != "gptq" && c.Format != "gptq_v2":
			return nil, fmt.Errorf("checkpoint_format: got %.200q, want gptq or gptq_v2", c.Format)
		case c.Marlin:
			return nil, fmt.Errorf("is_marlin_format: got true, want false")
		}
		return c, nil
	})
}

func (c gptq) find(f *finder) {
	for _, m := range f.modules("qweight") {
		words, out, ok := m.matrixShape("qweight", "I32")
		if !ok {
			continue
		}
		n := 32 / c.Bits
		in := words * n
		size := c.Group
		if size == -1 {
			size = in
		}
		groups := tileCount(in, size)
		if out%n != 0 {
			m.reportFault("qweight", "%d outputs, want a multiple of %d", out, n)
		}
		m.use("qzeros", []string{"I32"}, []int{groups, out / n})
		scale := m.use("scales", floatTypes, []int{groups, out})
		var index []int
		if c.Order || m.hasTensor("g_idx") {
			index = m.readIntegers("g_idx", []string{"I32"}, in)
		} else {
			index = make([]int, in)
			for i := range index {
				index[i] = i / size
			}
		}
		for i, g := range index {
			if g < 0 || g >= groups {
				m.reportFault("g_idx", "input %d is of group %d, want one of %d", i, g, groups)
				break
			}
		}
		zeros := func(packed []byte) []float32 {
			zeros := make([]float32, groups*out)
			for i := range groups * out / n {
				w := word(packed, i)
				if c.Format != "gptq_v2" {
					w += 0xffffffff / (1<<c.Bits - 1) // one for each, whose carries are as in gptqmodel
				}
				for j := range n {
					zeros[i*n+j] = float32(w >> (c.Bits * j) & (1<<c.Bits - 1))
				}
			}
			return zeros
		}
		columns := 0
		order, ok := inGroups(index)
		if ok {
			columns = blockCols
		}
		if m.keepBlocks(out, in, c.codes(), scale, columns, order, func(of [][]byte) func(b *block, row, col int) {
			scales, zeros := readFloats(of[2], scale), zeros(of[1])
			return func(b *block, row, col int) {
				c.blockCodes(&b.codes, of[0], out, row, col, order)
				if order != nil {
					col = int(order[col])
				}
				at := index[col]*out + row
				b.scale, b.zero = scales[at], byte(zeros[at])
				if c.Bits == 8 { // signed bytes begin in their middle
					b.zero ^= 1 << 7
				}
			}
		}) {
			continue
		}
		m.show(out, in, func(dst []byte, of [][]byte) {
			c.widenWeight(dst, of[0], in, out, index, readFloats(of[2], scale), zeros(of[1]), scale)
		})
	}
}

// codes names the codes of blocks.
func (c gptq) codes() string {
	if c.Bits == 8 {
		return "I8Z"
	}
	return "I4"
}

// blockCodes gives the codes of 32 inputs of a row, which follow each other in an order.
func (c gptq) blockCodes(codes *[blockCols]byte, qweight []byte, out, row, col int, order []int32) {
	n := 32 / c.Bits
	if order == nil && c.Bits == 4 {
		for i := 0; i < blockCols; i += 8 {
			nibbles((*[8]byte)(codes[i:]), word(qweight, (col+i)/8*out+row))
		}
		return
	}
	for i := range codes {
		input := col + i
		if order != nil {
			input = int(order[input])
		}
		codes[i] = byte(word(qweight, input/n*out+row) >> (input % n * c.Bits) & (1<<c.Bits - 1))
		if c.Bits == 8 {
			codes[i] ^= 1 << 7
		}
	}
}

// widenWeight widens qweight; scales and zeros are [groups, out].
func (c gptq) widenWeight(dst, qweight []byte, in, out int, index []int, scales, zeros []float32, scale string) {
	n := 32 / c.Bits
	mask := uint32(1<<c.Bits - 1)
	widenTiles(dst, out, in, transposedRows, transposedCols, scale, func(x []float32, t tile) {
		for col := 0; col < t.cols; col += n {
			words := qweight[4*((t.col+col)/n*out+t.row):][:4*t.rows]
			index := index[t.col+col:][:n]
			if c.Bits == 4 && !slices.ContainsFunc(index, func(g int) bool { return g != index[0] }) {
				s, z := scales[index[0]*out+t.row:][:t.rows], zeros[index[0]*out+t.row:][:t.rows]
				for r, z := range z {
					eight((*[8]float32)(x[r*transposedCols+col:]), word(words, r), s[r], z)
				}
				continue
			}
			for b, g := range index {
				s, z := scales[g*out+t.row:][:t.rows], zeros[g*out+t.row:][:t.rows]
				shift := b * c.Bits
				for r := range t.rows {
					x[r*transposedCols+col+b] = (small[word(words, r)>>shift&mask] - z[r]) * s[r]
				}
			}
		}
	})
}

// A tile of a transposed matrix: whole cache lines of the words of a row, and a width of three cache
// lines, as the rows of a wider power of two would share a few sets of the cache. It is a multiple of
// the codes in a word.
const transposedRows, transposedCols = 128, 48

func (c gptq) stored(_ string, cols int) kernels.DType {
	if c.Group == -1 {
		c.Group = cols
	}
	return typeOf(c.codes(), "F16", cols, c.Group)
}
