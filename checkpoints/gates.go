package checkpoints

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"glimpse/kernels"
)

// GatesKind is the kind of adapters that are gates.
const GatesKind = "kvzap"

// GateLayer is the gate of one layer: its tensors by their names in a file, after the layer's prefix. There are three shapes
// of gates, of inputs in, KV heads out:
//
//   - linear (KVzap, arXiv:2601.07891): weight [out, in], bias [out];
//   - MLP (KVzap): 0.weight [n, in], 0.bias [n], then GELU, 2.weight [out, n], 2.bias [out];
//   - low rank (Fast KVzip, arXiv:2601.17668), of d numbers: q_proj.weight [out·group·d, in] and its bias, k_proj.weight
//     [out·d, in], q_norm.weight [d], k_norm.weight [d], k_base [out·sinks, d], b [out, group].
//
// Vectors have one row.
type GateLayer map[string]Matrix

// The names of the tensors of each shape.
var (
	LinearGate  = []string{"weight", "bias"}
	MLPGate     = []string{"0.weight", "0.bias", "2.weight", "2.bias"}
	LowRankGate = []string{"q_proj.weight", "q_proj.bias", "k_proj.weight", "q_norm.weight", "k_norm.weight", "k_base", "b"}
)

// Is tells that the gate has exactly the named tensors.
func (g GateLayer) Is(names []string) bool {
	for _, name := range names {
		if _, ok := g[name]; !ok {
			return false
		}
	}
	return len(g) == len(names)
}

// The files of gates, as KVzap publishes them.
const (
	gatesConfigFile = "config.json"
	gatesModelFile  = "model.safetensors"
)

// gatesConfig is config.json of KVzap.
type gatesConfig struct {
	Architectures []string `json:"architectures,omitempty"`
	DType         string   `json:"dtype,omitempty"`
	Hidden        *int     `json:"hidden_dim"` // null: linear
	Input         int      `json:"input_dim"`
	ModelType     string   `json:"model_type"`
	Modules       int      `json:"n_modules"`
	Output        int      `json:"output_dim"`
}

// maxGateLayers is more than any model has.
const maxGateLayers = 1 << 12

// check refuses what is no configuration of gates.
func (c *gatesConfig) check() error {
	switch {
	case c.ModelType != GatesKind:
		return fmt.Errorf("model_type: got %.40q, want %q", c.ModelType, GatesKind)
	case c.Modules < 1 || c.Modules > maxGateLayers || c.Input < 1 || c.Input > maxHidden || c.Output < 1 || c.Output > maxHidden ||
		c.Hidden != nil && (*c.Hidden < 1 || *c.Hidden > maxHidden):
		return fmt.Errorf("n_modules, input_dim, output_dim, hidden_dim: got %d, %d, %d, %v, want 1 to %d modules of sizes from 1 to %d",
			c.Modules, c.Input, c.Output, c.Hidden, maxGateLayers, maxHidden)
	}
	return nil
}

// shapes are the tensors that a layer has, by name.
func (c *gatesConfig) shapes() map[string][2]int {
	if c.Hidden == nil {
		return map[string][2]int{"weight": {c.Output, c.Input}, "bias": {1, c.Output}}
	}
	n := *c.Hidden
	return map[string][2]int{"0.weight": {n, c.Input}, "0.bias": {1, n}, "2.weight": {c.Output, n}, "2.bias": {1, c.Output}}
}

// config describes gates, which KVzap's layout must have a place for.
func (a *Adapter) gatesConfig() (c gatesConfig, err error) {
	first := a.Gates[0]
	c = gatesConfig{Architectures: []string{"KVzapModel"}, DType: "float32", ModelType: GatesKind, Modules: len(a.Gates)}
	if a.BF16 {
		c.DType = "bfloat16"
	}
	switch {
	case first.Is(LinearGate):
		c.Output, c.Input = first["weight"].Rows, first["weight"].Cols
	case first.Is(MLPGate):
		hidden := first["0.weight"].Rows
		c.Output, c.Input, c.Hidden = first["2.weight"].Rows, first["0.weight"].Cols, &hidden
	default:
		return c, fmt.Errorf("gates with tensors %s: KVzap's layout has a place for linear gates and MLPs alone", listNames(slices.Sorted(maps.Keys(first))))
	}
	return c, nil
}

// validateGates checks that the gates of all layers have one shape, and that every number is finite.
func (a *Adapter) validateGates() error {
	if len(a.Gates) > maxGateLayers {
		return fmt.Errorf("gates of %d layers, want at most %d", len(a.Gates), maxGateLayers)
	}
	for l, g := range a.Gates {
		for _, name := range slices.Sorted(maps.Keys(a.Gates[0])) {
			want := a.Gates[0][name]
			if err := g[name].validateNumbers(fmt.Sprintf("gate of layer %d: %s", l, name), want.Rows, want.Cols, a.BF16); err != nil {
				return err
			}
		}
		if len(g) != len(a.Gates[0]) {
			return fmt.Errorf("gate of layer %d: %d tensors, want %d as layer 0 has", l, len(g), len(a.Gates[0]))
		}
	}
	return nil
}

// gateTensors are the tensors of all gates as KVzap names them.
func (a *Adapter) gateTensors() (all []TensorView) {
	for l, g := range a.Gates {
		for name, m := range g {
			view := m.tensorView(gateTensorName(l, name), a.BF16)
			if strings.HasSuffix(name, "bias") {
				view.Shape = []int{m.Cols}
			}
			all = append(all, view)
		}
	}
	return all
}

func gateTensorName(layer int, name string) string { return fmt.Sprintf("layers.%d.%s", layer, name) }

// readGates reads the two files of gates; own are those that this program has written, whose numbers are of one type.
func (a *Adapter) readGates(config, model []byte, own bool) error {
	var c gatesConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return Corruptf("%s: %v", gatesConfigFile, err)
	}
	if err := c.check(); err != nil {
		return Corruptf("%s: %v", gatesConfigFile, err)
	}
	s, err := ParseSafetensors(gatesModelFile, model)
	if err != nil {
		return err
	}
	if own {
		if err := checkMetadata(s); err != nil {
			return err
		}
		a.BF16 = s.tensors[gateTensorName(0, slices.Sorted(maps.Keys(c.shapes()))[0])].dtype == kernels.BF16.String()
	}
	a.Gates = make([]GateLayer, min(c.Modules, len(s.tensors)))
	for l := range a.Gates {
		a.Gates[l] = make(GateLayer)
	}
	var missing []string
	found := 0
	for l := range c.Modules {
		for name, shape := range c.shapes() {
			full := gateTensorName(l, name)
			if _, ok := s.tensors[full]; !ok {
				missing = append(missing, full)
				continue
			}
			found++
			if l < len(a.Gates) {
				if a.Gates[l][name], err = s.gateTensor(full, shape); err != nil {
					return err
				}
			}
		}
	}
	var p problems
	slices.Sort(missing)
	p.addNames("missing tensors", missing)
	if unknown := len(s.tensors) - found; unknown > 0 {
		p.addNames("unknown tensors", slices.DeleteFunc(s.Names(), func(name string) bool { return c.has(name) }))
	}
	return p.in(gatesModelFile + ": ")
}

// has tells that a tensor is one of a gate's.
func (c *gatesConfig) has(tensor string) bool {
	rest, ok := strings.CutPrefix(tensor, "layers.")
	number, name, dot := strings.Cut(rest, ".")
	l, err := strconv.Atoi(number)
	_, known := c.shapes()[name]
	return ok && dot && err == nil && l >= 0 && l < c.Modules && known
}

// gateTensor reads a tensor of the given rows and columns, in any type of numbers. A vector has one row.
func (s *Safetensors) gateTensor(name string, shape [2]int) (Matrix, error) {
	want := shape[:]
	if shape[0] == 1 && strings.HasSuffix(name, "bias") {
		want = shape[1:]
	}
	if got := s.tensors[name].shape; !slices.Equal(got, want) {
		return Matrix{}, Corruptf("%s: tensor %q: shape %s, want %s", s.name, name, ShapeString(got), ShapeString(want))
	}
	view, err := s.Tensor(name)
	if err != nil {
		return Matrix{}, err
	}
	m := Matrix{Rows: shape[0], Cols: shape[1], Data: make([]float32, view.Len())}
	return m, view.ReadF32(m.Data)
}

// readForeignGates reads a folder of gates that another program has written, which does not say for which weights: KVzap's, with
// config.json and model.safetensors, or Fast KVzip's, with one file of PyTorch. ok tells that it is one.
func readForeignGates(fsys fs.FS) (a *Adapter, ok bool, err error) {
	a = &Adapter{Kind: GatesKind, Loss: "mse", PoolingKernel: 1}
	if torch, err := fs.Glob(fsys, "*.pt"); err == nil && len(torch) == 1 {
		data, err := readBounded(fsys, torch[0], math.MaxInt)
		if err == nil {
			a.Gates, err = readFastKVzip(torch[0], data)
		}
		if err == nil {
			err = a.validateGates()
		}
		return a, true, err
	}
	config, err := readBounded(fsys, gatesConfigFile, maxManifest)
	var c gatesConfig
	if err != nil || json.Unmarshal(config, &c) != nil || c.ModelType != GatesKind {
		return nil, false, nil
	}
	model, err := readBounded(fsys, gatesModelFile, math.MaxInt)
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w", gatesModelFile, noPath(err))
	}
	if err := a.readGates(config, model, false); err != nil {
		return nil, true, err
	}
	if err := a.validateGates(); err != nil {
		return nil, true, Corruptf("%v", err)
	}
	return a, true, nil
}
