package quantized

import (
	"cmp"
	"encoding/json"
	"fmt"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// fp8 is transformers' FineGrainedFP8Config, the layout of DeepSeek-V3: X.weight is F8_E4M3 and
// X.weight_scale_inv, in spite of its name, what a block is multiplied by. Without blocks it is one
// number for the matrix. modules_to_not_convert are stored in other types, which tell them apart.
type fp8 struct {
	rows, cols int // of a block; 0: the whole matrix
}

func init() {
	methods.Add("fp8", func(raw json.RawMessage) (scheme, error) {
		c := struct {
			Block *[]int `json:"weight_block_size"`
		}{&[]int{128, 128}}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, err
		}
		if c.Block == nil {
			return fp8{}, nil
		}
		if b := *c.Block; len(b) != 2 || b[0] < 1 || b[1] < 1 {
			return nil, fmt.Errorf("weight_block_size: got %v, want two positive numbers", *c.Block)
		}
		return fp8{(*c.Block)[0], (*c.Block)[1]}, nil
	})
}

func (c fp8) find(f *finder) {
	f.drop("activation_scale")
	for _, m := range f.modules("weight", "weight_scale_inv") {
		if info, _ := f.weights.Info(m.name + ".weight"); info.DType != "F8_E4M3" && !m.hasTensor("weight_scale_inv") {
			continue
		}
		rows, cols, ok := m.matrixShape("weight", "F8_E4M3")
		if !ok {
			continue
		}
		x := &gridMatrix{rows: rows, cols: cols, codes: "E4M3", rowCodes: rowCodes{stride: cols, bits: 8, values: &formats.E4M3}, grid: newGrid(rows, cols, c.rows, c.cols)}
		shapes := [][]int{{}, {1}}
		if c.rows > 0 {
			shapes = [][]int{{tileCount(rows, c.rows), x.width}}
		}
		x.scaleType = m.use("weight_scale_inv", floatTypes, shapes...)
		if x.product = x.scaleType; x.product == "F16" { // products are of float32, whatever the scale's type
			x.product = "F32"
		}
		m.showGrid(x)
	}
}

func (c fp8) stored(_ string, cols int) kernels.DType {
	c.cols = cmp.Or(c.cols, cols)
	return typeOf("E4M3", "F32", cols, c.cols)
}
