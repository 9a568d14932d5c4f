package checkpoints_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/kernels"
)

// rawTensor is bytes of any type.
type rawTensor struct {
	Name, DType string
	Shape       []int
	Data        []byte
}

// splitRaw are weights of tensors of bytes, with their experts one by one.
func splitRaw(t *testing.T, tensors ...rawTensor) (*checkpoints.Weights, error) {
	t.Helper()
	header, at := map[string]any{}, 0
	var data []byte
	for _, x := range tensors {
		header[x.Name] = map[string]any{"dtype": x.DType, "shape": x.Shape, "data_offsets": []int{at, at + len(x.Data)}}
		at += len(x.Data)
		data = append(data, x.Data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
	w, err := checkpoints.OpenWeightsFS(fstest.MapFS{"model.safetensors": &fstest.MapFile{Data: file}}, ".")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, w.SplitExperts()
}

// splitWeights are weights of the given tensors, with their experts one by one.
func splitWeights(t *testing.T, tensors ...checkpoints.TensorView) (*checkpoints.Weights, error) {
	t.Helper()
	var file bytes.Buffer
	if err := checkpoints.WriteSafetensors(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	w, err := checkpoints.OpenWeightsFS(fstest.MapFS{"model.safetensors": &fstest.MapFile{Data: file.Bytes()}}, ".")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, w.SplitExperts()
}

// TestSplitExperts: of three experts every element is where its formula says.
func TestSplitExperts(t *testing.T) {
	const experts, hidden, width = 3, 4, 5
	numbers := func(shape ...int) checkpoints.TensorView {
		values := make([]float32, kernels.ShapeLen(shape))
		for i := range values {
			values[i] = float32(i)
		}
		return checkpoints.F32Tensor("", shape, values)
	}
	named := func(name string, v checkpoints.TensorView) checkpoints.TensorView { v.Name = name; return v }
	at := "model.layers.7.mlp.experts."
	w, err := splitWeights(t, named(at+"gate_up_proj", numbers(experts, hidden, 2*width)), named(at+"gate_up_proj_bias", numbers(experts, 2*width)),
		named(at+"down_proj", numbers(experts, width, hidden)), named(at+"down_proj_bias", numbers(experts, hidden)), named("other.weight", numbers(2, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.Names()); n != 1+6*experts {
		t.Errorf("%d tensors %v, want %d", n, w.Names(), 1+6*experts)
	}
	for e := range experts {
		for _, c := range []struct {
			name  string
			shape []int
			want  func(i int) int
		}{
			{"gate_proj.weight", []int{width, hidden}, func(i int) int { return (e*hidden+i%hidden)*2*width + 2*(i/hidden) }},
			{"up_proj.weight", []int{width, hidden}, func(i int) int { return (e*hidden+i%hidden)*2*width + 2*(i/hidden) + 1 }},
			{"down_proj.weight", []int{hidden, width}, func(i int) int { return (e*width+i%width)*hidden + i/width }},
			{"gate_proj.bias", []int{width}, func(i int) int { return e*2*width + 2*i }},
			{"up_proj.bias", []int{width}, func(i int) int { return e*2*width + 2*i + 1 }},
			{"down_proj.bias", []int{hidden}, func(i int) int { return e*hidden + i }},
		} {
			name := fmt.Sprintf("%s%d.%s", at, e, c.name)
			view, err := w.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, view.Len())
			if err := view.ReadF32(got); err != nil || !slices.Equal(view.Shape, c.shape) {
				t.Fatalf("%s: %v, shape %v, want %v", name, err, view.Shape, c.shape)
			}
			for i, v := range got {
				if int(v) != c.want(i) {
					t.Fatalf("%s[%d]: stored element %v, want %d", name, i, v, c.want(i))
				}
			}
		}
	}
}

// TestSplitExpertsByRows: experts that are stored as rows of outputs, gate before up, are views of the file.
func TestSplitExpertsByRows(t *testing.T) {
	const experts, hidden, width = 3, 4, 5
	at := "model.language_model.layers.7.mlp.experts."
	numbers := func(name string, shape ...int) checkpoints.TensorView {
		values := make([]float32, kernels.ShapeLen(shape))
		for i := range values {
			values[i] = float32(i)
		}
		return checkpoints.F32Tensor(at+name, shape, values)
	}
	w, err := splitWeights(t, numbers("gate_up_proj", experts, 2*width, hidden), numbers("down_proj", experts, hidden, width))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.Names()); n != 3*experts {
		t.Errorf("%d tensors %v, want %d", n, w.Names(), 3*experts)
	}
	for e := range experts {
		for name, c := range map[string]struct{ first, rows, columns int }{
			"gate_proj": {2 * e * width * hidden, width, hidden}, "up_proj": {(2*e + 1) * width * hidden, width, hidden}, "down_proj": {e * hidden * width, hidden, width},
		} {
			name := fmt.Sprintf("%s%d.%s.weight", at, e, name)
			info, _ := w.Info(name)
			view, err := w.Tensor(name)
			if err != nil || info.Made || !slices.Equal(view.Shape, []int{c.rows, c.columns}) || !slices.Equal(info.Shape, view.Shape) {
				t.Fatalf("%s: %v, made %v, shapes %v and %v, want a view [%d %d]", name, err, info.Made, info.Shape, view.Shape, c.rows, c.columns)
			}
			got := make([]float32, view.Len())
			if err := view.ReadF32(got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if int(v) != c.first+i {
					t.Fatalf("%s[%d]: stored element %v, want %d", name, i, v, c.first+i)
				}
			}
		}
	}
}

// TestSplitExpertsOfBlocks: codes of E2M1 by their sign, exponent and mantissa, scales of E8M0 from the least to the largest
// that keep a bfloat16 normal.
func TestSplitExpertsOfBlocks(t *testing.T) {
	const experts, hidden, width, groups = 2, 64, 3, 2
	rng := rand.New(rand.NewPCG(1, 2))
	blocks, scales := make([]byte, experts*2*width*groups*16), make([]byte, experts*2*width*groups)
	for i := range blocks {
		blocks[i] = byte(rng.Uint32())
	}
	for i := range scales {
		scales[i] = byte(10 + rng.IntN(230))
	}
	at := "model.layers.0.mlp.experts."
	bytesOf := func(name string, data []byte, shape ...int) rawTensor {
		return rawTensor{Name: name, DType: "U8", Shape: shape, Data: data}
	}
	w, err := splitRaw(t, bytesOf(at+"gate_up_proj_blocks", blocks, experts, 2*width, groups, 16), bytesOf(at+"gate_up_proj_scales", scales, experts, 2*width, groups))
	if err != nil {
		t.Fatal(err)
	}
	for e := range experts {
		for part, name := range []string{"gate_proj", "up_proj"} {
			view, err := w.Tensor(fmt.Sprintf("%s%d.%s.weight", at, e, name))
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, view.Len())
			if err := view.ReadF32(got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				row, col := e*2*width+2*(i/hidden)+part, i%hidden
				code := blocks[(row*groups+col/32)*16+col%32/2] >> (4 * (col % 2)) & 15
				exponent, mantissa := int(code>>1&3), float64(code&1)
				want := math.Ldexp(1+mantissa/2, exponent-1)
				if exponent == 0 {
					want = mantissa / 2
				}
				if code&8 != 0 {
					want = -want
				}
				if want *= math.Pow(2, float64(scales[row*groups+col/32])-127); float64(v) != want {
					t.Fatalf("expert %d %s[%d]: %v, want %v", e, name, i, v, want)
				}
			}
		}
	}
	for what, tensors := range map[string][]rawTensor{
		"no scales":    {bytesOf(at+"gate_up_proj_blocks", blocks, experts, 2*width, groups, 16)},
		"other scales": {bytesOf(at+"gate_up_proj_blocks", blocks, experts, 2*width, groups, 16), bytesOf(at+"gate_up_proj_scales", scales[:12], experts, width, groups)},
		"other blocks": {bytesOf(at+"gate_up_proj_blocks", blocks, experts, 2*width, 2*groups, 8), bytesOf(at+"gate_up_proj_scales", scales, experts, 2*width, groups)},
		"odd rows":     {bytesOf(at+"gate_up_proj_blocks", blocks[:experts*width*groups*16], experts, width, groups, 16), bytesOf(at+"gate_up_proj_scales", scales[:12], experts, width, groups)},
		"flat":         {bytesOf(at+"gate_up_proj", blocks, len(blocks))},
	} {
		if _, err := splitRaw(t, tensors...); err == nil || !strings.Contains(err.Error(), "gate_up_proj") {
			t.Errorf("%s: error %v, want one of the tensor", what, err)
		}
	}
}
