package quantized

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/listing"
	"glimpse/internal/registry"
	"glimpse/kernels"
)

// Config is a quantization_config that can be read.
type Config struct{ scheme scheme }

// scheme is how the modules of a checkpoint are stored.
type scheme interface {
	// find finds the modules that are stored quantised.
	find(f *finder)
	// stored is the type that a matrix of a layer is expected to have, by its name and columns, without files that tell it.
	stored(name string, cols int) kernels.DType
}

// methods read a quantization_config, by its quant_method.
var methods = registry.Registry[func(raw json.RawMessage) (scheme, error)]{Noun: "quant_method"}

// Parse reads the quantization_config of config.json. Errors name its key.
func Parse(raw json.RawMessage) (*Config, error) {
	var head struct {
		Method string `json:"quant_method"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	parse, err := methods.Lookup(head.Method)
	if err != nil {
		return nil, err
	}
	s, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", head.Method, err)
	}
	return &Config{s}, nil
}

// Stored is the type that a matrix of a layer is expected to have in memory, by its name and columns: the files, which alone
// tell the types of scales, may have another one.
func (c *Config) Stored(name string, cols int) kernels.DType { return c.scheme.stored(name, cols) }

// Show puts the weights of quantised modules, in blocks or in BF16, in the place of the stored tensors.
// Other tensors stay as they are. The weights come from safetensors files.
func (c *Config) Show(w *checkpoints.Weights) error {
	f := &finder{weights: w, derived: map[string]checkpoints.Derived{}}
	c.scheme.find(f)
	if len(f.errs) > 0 {
		return listing.JoinErrors(f.errs)
	}
	return w.Derive(f.derived, f.unused)
}

// finder collects what a scheme finds.
type finder struct {
	weights *checkpoints.Weights
	derived map[string]checkpoints.Derived
	unused  []string // tensors that the model does not need
	wide    bool     // every matrix is widened, whatever format there is
	errs    []error
}

// modules are those with a tensor of one of the names, sorted.
func (f *finder) modules(tensors ...string) []*module {
	var names []string
	for _, name := range f.weights.Names() {
		for _, t := range tensors {
			if module, ok := strings.CutSuffix(name, "."+t); ok {
				names = append(names, module)
			}
		}
	}
	slices.Sort(names)
	var all []*module
	for _, name := range slices.Compact(names) {
		all = append(all, &module{finder: f, name: name})
	}
	return all
}

// drop hides the tensors of these names of all modules.
func (f *finder) drop(tensors ...string) {
	for _, m := range f.modules(tensors...) {
		for _, t := range tensors {
			if m.hasTensor(t) {
				f.unused = append(f.unused, m.name+"."+t)
			}
		}
	}
}

// module is one whose stored tensors are being looked up.
type module struct {
	*finder
	name  string
	of    []string // what Make will get, in order
	wrong bool
}

func (m *module) reportFault(tensor, format string, args ...any) {
	m.wrong = true
	m.errs = append(m.errs, checkpoints.Corruptf("tensor %.200q: %s", m.name+"."+tensor, fmt.Sprintf(format, args...)))
}

func (m *module) hasTensor(tensor string) bool {
	_, ok := m.weights.Info(m.name + "." + tensor)
	return ok
}

// findTensor finds a tensor, which has one of the types and one of the shapes.
func (m *module) findTensor(tensor string, dtypes []string, shapes ...[]int) (dtype string) {
	want := strings.Join(dtypes, " or ") + " of shape"
	for i, shape := range shapes {
		if i > 0 {
			want += " or"
		}
		want += fmt.Sprint(" ", shape)
	}
	info, ok := m.weights.Info(m.name + "." + tensor)
	same := func(shape []int) bool { return slices.Equal(shape, info.Shape) }
	switch {
	case !ok:
		m.reportFault(tensor, "missing, want %s", want)
	case !slices.Contains(dtypes, info.DType) || !slices.ContainsFunc(shapes, same):
		m.reportFault(tensor, "%s of shape %v, want %s", info.DType, checkpoints.ShapeString(info.Shape), want)
	}
	return info.DType
}

// use is look for a tensor whose bytes Make will get.
func (m *module) use(tensor string, dtypes []string, shapes ...[]int) (dtype string) {
	m.of = append(m.of, m.name+"."+tensor)
	return m.findTensor(tensor, dtypes, shapes...)
}

// readIntegers is findTensor for a tensor of integers that Make does not need; nil where anything was wrong.
func (m *module) readIntegers(tensor string, dtypes []string, shape ...int) []int {
	dtype := m.findTensor(tensor, dtypes, shape)
	if m.wrong {
		return nil
	}
	data, err := m.weights.Raw(m.name + "." + tensor)
	if err != nil {
		m.wrong, m.errs = true, append(m.errs, err)
		return nil
	}
	m.unused = append(m.unused, m.name+"."+tensor)
	return integers(data, dtype)
}

// matrixShape looks up a tensor of two dimensions, neither of them 0, whose bytes Make will get.
func (m *module) matrixShape(tensor string, dtypes ...string) (rows, cols int, ok bool) {
	info, ok := m.weights.Info(m.name + "." + tensor)
	switch {
	case !ok:
		m.reportFault(tensor, "missing, want %s [rows columns]", strings.Join(dtypes, " or "))
		return 0, 0, false
	case !slices.Contains(dtypes, info.DType) || len(info.Shape) != 2 || info.Bytes == 0:
		m.reportFault(tensor, "%s of shape %v, want %s [rows columns]", info.DType, checkpoints.ShapeString(info.Shape), strings.Join(dtypes, " or "))
		return 0, 0, false
	}
	m.of = append(m.of, m.name+"."+tensor)
	return info.Shape[0], info.Shape[1], true
}

// show adds the module's weight, unless something was wrong.
func (m *module) show(rows, cols int, widen func(dst []byte, of [][]byte)) {
	if !m.wrong {
		m.derived[m.name+".weight"] = checkpoints.Derived{DType: kernels.BF16, Shape: []int{rows, cols}, Of: m.of, Make: widen}
	}
}

// tileCount is how many parts of a size a whole has, the last of them perhaps smaller. Both are positive.
func tileCount(whole, size int) int { return 1 + (whole-1)/size }

var floatTypes = []string{"F32", "F16", "BF16"}
