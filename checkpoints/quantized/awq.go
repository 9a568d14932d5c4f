package quantized

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glimpse/kernels"
)

// awq is the GEMM layout of AutoAWQ, transposed: X.qweight I32 [in, out/8] and X.qzeros I32
// [groups, out/8] hold 8 codes of 4 bits in a word, in awqOrder; X.scales [groups, out]. Modules
// of modules_to_not_convert have a weight in its place.
type awq struct{ group int } // -1: all inputs

// awqOrder is the output, of the 8 of a word, whose code is at each place from the low bits on.
var awqOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

func init() {
	methods.Add("awq", func(raw json.RawMessage) (scheme, error) {
		c := struct {
			Bits    int    `json:"bits"`
			Group   int    `json:"group_size"`
			Zero    bool   `json:"zero_point"`
			Version string `json:"version"`
			Format  string `json:"format"` // in files of gptqmodel
			Backend string `json:"backend"`
		}{4, 128, true, "", "gemm", ""}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, err
		}
		c.Version = cmp.Or(c.Version, c.Format)
		switch {
		case !strings.EqualFold(c.Version, "gemm"):
			return nil, fmt.Errorf("version: got %.200q, want gemm", c.Version)
		case c.Backend == "llm-awq": // whose version is another layout
			return nil, fmt.Errorf("backend: got %q, want autoawq", c.Backend)
		case c.Bits != 4:
			return nil, fmt.Errorf("bits: got %d, want 4", c.Bits)
		case c.Group < 1 && c.Group != -1:
			return nil, fmt.Errorf("group_size: got %d, want at least 1, or -1", c.Group)
		case !c.Zero:
			return nil, fmt.Errorf("zero_point: got false, want true")
		}
		return awq{c.Group}, nil
	})
}

func (c awq) find(f *finder) {
	for _, m := range f.modules("qweight") {
		in, words, ok := m.matrixShape("qweight", "I32")
		if !ok {
			continue
		}
		out, size := 8*words, c.group
		if size == -1 {
			size = in
		}
		if in%size != 0 {
			m.reportFault("qweight", "%d inputs, want a multiple of group_size %d", in, size)
		}
		groups := tileCount(in, size)
		m.use("qzeros", []string{"I32"}, []int{groups, words})
		scale := m.use("scales", floatTypes, []int{groups, out})
		zeros := func(packed []byte) []float32 {
			zeros := make([]float32, groups*out)
			for i := range groups * words {
				w := word(packed, i)
				for place, o := range awqOrder {
					zeros[8*i+o] = small[w>>(4*place)&15]
				}
			}
			return zeros
		}
		if m.keepBlocks(out, in, "I4", scale, size, nil, func(of [][]byte) func(b *block, row, col int) {
			scales, zeros := readFloats(of[2], scale), zeros(of[1])
			return func(b *block, row, col int) {
				shift := 4 * slices.Index(awqOrder[:], row%8)
				for i := range b.codes {
					b.codes[i] = byte(word(of[0], (col+i)*words+row/8) >> shift & 15)
				}
				at := col/size*out + row
				b.scale, b.zero = scales[at], byte(zeros[at])
			}
		}) {
			continue
		}
		m.show(out, in, func(dst []byte, of [][]byte) {
			widenAWQ(dst, of[0], in, out, size, readFloats(of[2], scale), zeros(of[1]), scale)
		})
	}
}

// widenAWQ widens qweight; scales and zeros are [groups, out].
func widenAWQ(dst, qweight []byte, in, out, size int, scales, zeros []float32, scale string) {
	widenTiles(dst, out, in, transposedRows, transposedCols, scale, func(x []float32, t tile) {
		for r := 0; r < t.rows; r += 8 {
			for from := 0; from < t.cols; {
				g := (t.col + from) / size
				to := min(t.cols, (g+1)*size-t.col)
				s, z := (*[8]float32)(scales[g*out+t.row+r:]), (*[8]float32)(zeros[g*out+t.row+r:])
				for col := from; col < to; col++ {
					w, x := word(qweight, ((t.col+col)*out+t.row+r)/8), (*[7*transposedCols + 1]float32)(x[r*transposedCols+col:])
					x[0] = (small[w&15] - z[0]) * s[0]
					x[2*transposedCols] = (small[w>>4&15] - z[2]) * s[2]
					x[4*transposedCols] = (small[w>>8&15] - z[4]) * s[4]
					x[6*transposedCols] = (small[w>>12&15] - z[6]) * s[6]
					x[1*transposedCols] = (small[w>>16&15] - z[1]) * s[1]
					x[3*transposedCols] = (small[w>>20&15] - z[3]) * s[3]
					x[5*transposedCols] = (small[w>>24&15] - z[5]) * s[5]
					x[7*transposedCols] = (small[w>>28] - z[7]) * s[7]
				}
				from = to
			}
		}
	})
}

func (c awq) stored(_ string, cols int) kernels.DType {
	if c.group == -1 {
		c.group = cols
	}
	return typeOf("I4", "F16", cols, c.group)
}
