package checkpoints

import (
	"encoding/binary"
	"fmt"
	"strings"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// SplitExperts shows experts one by one where files hold all of a layer in one tensor. Qwen3.5 has X.experts.gate_up_proj
// [experts, 2·width, hidden], gate before up, and X.experts.down_proj [experts, hidden, width]; one expert's are views of these. In
// gpt-oss the outputs of gate and up take turns: X.experts.gate_up_proj [experts, hidden, 2·width], X.experts.down_proj [experts,
// width, hidden] and their _bias [experts, out] become X.experts.E.gate_proj, up_proj and down_proj. What is stored as blocks of
// MXFP4, X_blocks U8 [experts, out, in/32, 16] and X_scales U8 [experts, out, in/32], stays in blocks where the processor
// has kernels for them (format E2M1_E8M0), and is widened to BF16 otherwise, which holds it exactly (OCP Microscaling Formats
// 1.0, §5.3.3).
func (w *Weights) SplitExperts() error {
	derived := map[string]Derived{}
	for _, name := range w.Names() {
		prefix, tensor, ok := cutLast(name, ".experts.")
		if !ok {
			continue
		}
		info, _ := w.Info(name)
		module, kind := tensor, ""
		for _, k := range []string{"_blocks", "_scales", "_bias"} {
			if m, ok := strings.CutSuffix(tensor, k); ok {
				module, kind = m, k
			}
		}
		s := stacked{name: name, parts: map[string]int{"gate_up_proj": 2, "down_proj": 1}[module]}
		if s.parts == 0 || kind == "_scales" {
			continue
		}
		var err error
		switch kind {
		case "_bias":
			err = s.bias(w, info, derived, prefix)
		case "_blocks":
			err = s.addBlocks(w, info, derived, prefix)
		default:
			err = s.plain(w, info, derived, prefix)
		}
		if err != nil {
			return err
		}
	}
	if len(derived) == 0 {
		return nil
	}
	return w.Derive(derived, nil)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 || strings.Contains(s[i+len(sep):], ".") {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], true
}

// byRows tells that the experts of a layer are stored as rows of outputs, gate before up.
func byRows(w *Weights, prefix string) bool {
	gateUp, ok := w.Info(prefix + ".experts.gate_up_proj")
	down, ok2 := w.Info(prefix + ".experts.down_proj")
	return ok && ok2 && len(gateUp.Shape) == 3 && len(down.Shape) == 3 && gateUp.Shape[2] == down.Shape[1] && gateUp.Shape[1] == 2*down.Shape[2]
}

// stacked is a tensor of all experts of a layer.
type stacked struct {
	name  string
	parts int // whose rows take turns
}

// mostExperts bounds how many tensors a file can make.
const mostExperts = 1 << 12

func (s *stacked) checkShape(info TensorInfo, rank int, out int) error {
	if len(info.Shape) != rank || info.Shape[0] < 1 || info.Shape[0] > mostExperts || info.Bytes == 0 || out%s.parts != 0 {
		return Corruptf("tensor %.200q: %s of shape %.80v, want that of up to %d experts", s.name, info.DType, fmt.Sprint(info.Shape), mostExperts)
	}
	return nil
}

// addPart shows a part of every expert, whose rows f writes; without f it is a view of as many rows as it has.
func (s *stacked) addPart(derived map[string]Derived, prefix, kind string, experts int, d Derived, f func(dst []byte, of [][]byte, expert, part int)) {
	names := []string{"down_proj"}
	if s.parts == 2 {
		names = []string{"gate_proj", "up_proj"}
	}
	for e := range experts {
		for part, name := range names {
			one := d
			if one.From = (e*len(names) + part) * d.size(); f != nil {
				one.Make = func(dst []byte, of [][]byte) { f(dst, of, e, part) }
			}
			derived[fmt.Sprintf("%s.experts.%d.%s.%s", prefix, e, name, kind)] = one
		}
	}
}

func (s *stacked) dtype(info TensorInfo) (d kernels.DType, size int, err error) {
	if d, err = kernels.ParseStored(info.DType); err != nil || d == kernels.I32 {
		return d, 0, Corruptf("tensor %.200q: stored as %s, want a floating-point type", s.name, info.DType)
	}
	return d, d.Size(), nil
}

func (s *stacked) bias(w *Weights, info TensorInfo, derived map[string]Derived, prefix string) error {
	if err := s.checkShape(info, 2, info.Shape[len(info.Shape)-1]); err != nil {
		return err
	}
	d, size, err := s.dtype(info)
	if err != nil {
		return err
	}
	out := info.Shape[1]
	s.addPart(derived, prefix, "bias", info.Shape[0], Derived{DType: d, Shape: []int{out / s.parts}, Of: []string{s.name}}, func(dst []byte, of [][]byte, e, part int) {
		for i := range out / s.parts {
			copy(dst[i*size:][:size], of[0][(e*out+i*s.parts+part)*size:])
		}
	})
	return nil
}

func (s *stacked) plain(w *Weights, info TensorInfo, derived map[string]Derived, prefix string) error {
	if err := s.checkShape(info, 3, 0); err != nil {
		return err
	}
	d, size, err := s.dtype(info)
	if err != nil {
		return err
	}
	if byRows(w, prefix) {
		s.addPart(derived, prefix, "weight", info.Shape[0], Derived{DType: d, Shape: []int{info.Shape[1] / s.parts, info.Shape[2]}, Of: []string{s.name}}, nil)
		return nil
	}
	in, out := info.Shape[1], info.Shape[2]
	if err := s.checkShape(info, 3, out); err != nil {
		return err
	}
	s.addPart(derived, prefix, "weight", info.Shape[0], Derived{DType: d, Shape: []int{out / s.parts, in}, Of: []string{s.name}}, func(dst []byte, of [][]byte, e, part int) {
		for i := range in {
			row := of[0][(e*in+i)*out*size:][:out*size]
			for o := range out / s.parts {
				copy(dst[(o*in+i)*size:][:size], row[(o*s.parts+part)*size:])
			}
		}
	})
	return nil
}

// Kept is the type of a format of blocks where the processor has kernels for it, BF16 where it has none.
func Kept(format string) kernels.DType {
	dtype, err := kernels.ParseStored(format)
	if err != nil {
		return kernels.BF16
	}
	if f, ok := dtype.Format(); !ok || !f.Assembled() {
		return kernels.BF16
	}
	return dtype
}

// MXFP4 is the format of experts that are stored in blocks.
const MXFP4 = "E2M1_E8M0"

func (s *stacked) addBlocks(w *Weights, info TensorInfo, derived map[string]Derived, prefix string) error {
	out := 0
	if len(info.Shape) == 4 {
		out = info.Shape[1]
	}
	if err := s.checkShape(info, 4, out); err != nil {
		return err
	}
	scales := strings.TrimSuffix(s.name, "_blocks") + "_scales"
	of, ok := w.Info(scales)
	groups := info.Shape[2]
	if want := []int{info.Shape[0], out, groups}; info.DType != "U8" || info.Shape[3] != 16 || !ok || of.DType != "U8" || fmt.Sprint(of.Shape) != fmt.Sprint(want) {
		return Corruptf("tensor %.200q: %s of shape %.80v with scales %s of shape %.80v, want U8 [experts, out, in/32, 16] and U8 %v", s.name, info.DType, fmt.Sprint(info.Shape), of.DType, fmt.Sprint(of.Shape), want)
	}
	in, dtype := 32*groups, Kept(MXFP4)
	format, err := formats.All.Lookup(MXFP4)
	if err != nil {
		panic(err)
	}
	s.addPart(derived, prefix, "weight", info.Shape[0], Derived{DType: dtype, Shape: []int{out / s.parts, in}, Of: []string{s.name, scales}}, func(dst []byte, of [][]byte, e, part int) {
		row, wide := make([]byte, groups*format.Bytes), make([]uint16, in)
		for o := range out / s.parts {
			first := (e*out + o*s.parts + part) * groups
			for g := range groups {
				toMXFP4(row[g*format.Bytes:], of[1][first+g], of[0][(first+g)*16:][:16])
			}
			if dtype != kernels.BF16 {
				copy(dst[o*len(row):], row)
				continue
			}
			format.Round(wide, row, simd.NarrowBF16)
			for i, x := range wide {
				binary.LittleEndian.PutUint16(dst[2*(o*in+i):], x)
			}
		}
	})
	return nil
}

// toMXFP4 writes a block: the codes of neighbours share a byte where they are stored, and codes i and i+16 do in a block.
func toMXFP4(dst []byte, scale byte, codes []byte) {
	dst[0] = scale
	for i := range 8 {
		low, high := codes[i], codes[i+8]
		dst[1+2*i], dst[2+2*i] = low&15|high<<4, low>>4|high&0xf0
	}
}
