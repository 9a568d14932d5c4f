package quantized

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
)

// stored is a tensor of a test's file.
type stored struct {
	dtype string
	shape []int
	data  []byte // nil: zeros
}

var sizes = map[string]int{"F8_E4M3": 1, "I8": 1, "U8": 1, "F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}

// file is a safetensors file.
func file(t testing.TB, tensors map[string]stored) []byte {
	t.Helper()
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, payload := map[string]entry{}, []byte{}
	for name, s := range tensors {
		size := sizes[s.dtype]
		for _, n := range s.shape {
			size *= n
		}
		if s.data == nil {
			s.data = make([]byte, size)
		}
		header[name] = entry{s.dtype, append([]int{}, s.shape...), [2]int{len(payload), len(payload) + size}}
		payload = append(payload, s.data[:size]...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), payload...)
}

// weights are those of a file.
func weights(t testing.TB, tensors map[string]stored) *checkpoints.Weights {
	t.Helper()
	w, err := checkpoints.OpenWeightsFS(fstest.MapFS{"model.safetensors": {Data: file(t, tensors)}}, ".")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// layouts are a module of every layout: its configuration, and what is stored of it.
func layouts(rows, cols int) map[string]struct {
	config  string
	tensors map[string]stored
} {
	compressed := func(format, weights string) string {
		return `{"quant_method":"compressed-tensors","format":"` + format + `","config_groups":{"group_0":{"targets":["Linear"],"weights":{` + weights + `}}},"ignore":["lm_head"]}`
	}
	type s = stored
	return map[string]struct {
		config  string
		tensors map[string]stored
	}{
		"fp8":   {`{"quant_method":"fp8","weight_block_size":[128,128]}`, map[string]s{"X.weight": {dtype: "F8_E4M3", shape: []int{rows, cols}}, "X.weight_scale_inv": {dtype: "F32", shape: []int{rows / 128, cols / 128}}}},
		"float": {compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"channel"`), map[string]s{"X.weight": {dtype: "F8_E4M3", shape: []int{rows, cols}}, "X.weight_scale": {dtype: "BF16", shape: []int{rows, 1}}}},
		"int":   {compressed("int-quantized", `"num_bits":8,"type":"int","symmetric":false,"strategy":"channel"`), map[string]s{"X.weight": {dtype: "I8", shape: []int{rows, cols}}, "X.weight_scale": {dtype: "BF16", shape: []int{rows, 1}}, "X.weight_zero_point": {dtype: "I8", shape: []int{rows, 1}}}},
		"pack": {compressed("pack-quantized", `"num_bits":4,"type":"int","symmetric":false,"strategy":"group","group_size":128`), map[string]s{"X.weight_packed": {dtype: "I32", shape: []int{rows, cols / 8}}, "X.weight_scale": {dtype: "BF16", shape: []int{rows, cols / 128}},
			"X.weight_shape": {dtype: "I64", shape: []int{2}, data: shape64(rows, cols)}, "X.weight_zero_point": {dtype: "I32", shape: []int{rows / 8, cols / 128}}, "X.weight_g_idx": {dtype: "I32", shape: []int{cols}, data: inOrder(cols, 128)}}},
		"gptq": {`{"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true}`, map[string]s{"X.qweight": {dtype: "I32", shape: []int{cols / 8, rows}}, "X.qzeros": {dtype: "I32", shape: []int{cols / 128, rows / 8}}, "X.scales": {dtype: "F16", shape: []int{cols / 128, rows}}, "X.g_idx": {dtype: "I32", shape: []int{cols}, data: inOrder(cols, 128)}}},
		"awq":  {`{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm"}`, map[string]s{"X.qweight": {dtype: "I32", shape: []int{cols, rows / 8}}, "X.qzeros": {dtype: "I32", shape: []int{cols / 128, rows / 8}}, "X.scales": {dtype: "F16", shape: []int{cols / 128, rows}}}},
	}
}

func shape64(rows, cols int) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(cols))
}

// inOrder is a g_idx of columns in order.
func inOrder(cols, size int) (data []byte) {
	for i := range cols {
		data = binary.LittleEndian.AppendUint32(data, uint32(i/size))
	}
	return data
}

// shuffled is a g_idx of columns out of order, as many of each group.
func shuffled(cols, size int) (data []byte) {
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(cols) {
		data = binary.LittleEndian.AppendUint32(data, uint32(i/size))
	}
	return data
}

// BenchmarkWiden: bytes are those of the widened matrix.
func BenchmarkWiden(b *testing.B) {
	const rows, cols = 4096, 4096
	for name, l := range layouts(rows, cols) {
		b.Run("layout="+name, func(b *testing.B) {
			w := weights(b, l.tensors)
			c, err := Parse([]byte(l.config))
			if err != nil {
				b.Fatal(err)
			}
			f := &finder{weights: w, derived: map[string]checkpoints.Derived{}}
			if c.scheme.find(f); len(f.errs) > 0 {
				b.Fatal(f.errs)
			}
			d := f.derived["X.weight"]
			dst, of := make([]byte, 2*rows*cols), make([][]byte, len(d.Of))
			for i, name := range d.Of {
				if of[i], err = w.Raw(name); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				d.Make(dst, of)
			}
		})
	}
}
