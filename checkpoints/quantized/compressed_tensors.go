package quantized

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// compressed is the layout of the compressed-tensors package, in which llm-compressor writes:
//
//	float-quantized  X.weight F8_E4M3
//	int-quantized    X.weight I8
//	pack-quantized   X.weight_packed I32, whose bits are codes one after the other, in
//	                 rows that begin with a word; X.weight_shape the matrix's; X.weight_g_idx, of
//	                 older versions, the group of each column
//
// and X.weight_scale beside all, by the group's strategy, and X.weight_zero_point where codes are
// not symmetric. Those of pack-quantized are packed likewise along columns.
type compressed struct {
	groups []group
	ignore targets
}

// group is an entry of config_groups.
type group struct {
	Targets []string     `json:"targets"`
	Weights *codeOptions `json:"weights"`
	Format  string       `json:"format"` // "": that of the file

	targets targets
	layout  *layout
}

// codeOptions say how the codes of weights are made, and how many share a scale.
type codeOptions struct {
	Bits      int             `json:"num_bits"`
	Type      string          `json:"type"`
	Symmetric *bool           `json:"symmetric"`
	Strategy  string          `json:"strategy"`
	Size      int             `json:"group_size"`
	Block     json.RawMessage `json:"block_structure"`

	rows, cols int // of a block, 0: all of the matrix
}

// layout is how a format stores codes.
type layout struct {
	find func(m *module, g *group)
	bits map[string][]int // by their type
}

// layoutOf has the layouts by the names of formats.
var layoutOf = map[string]*layout{
	"float-quantized": plainLayout, "int-quantized": plainLayout, "naive-quantized": plainLayout,
	"pack-quantized": {find: packedCodes, bits: map[string][]int{"int": {4, 8}}},
}

var plainLayout = &layout{find: plainCodes, bits: map[string][]int{"float": {8}, "int": {1, 2, 3, 4, 5, 6, 7, 8}}}

func init() { methods.Add("compressed-tensors", parseCompressed) }

func parseCompressed(raw json.RawMessage) (scheme, error) {
	var c struct {
		Format   string                     `json:"format"`
		Groups   map[string]json.RawMessage `json:"config_groups"`
		Ignore   []string                   `json:"ignore"`
		Sparsity struct {
			Format string `json:"format"`
		} `json:"sparsity_config"`
		Transform struct {
			Groups map[string]json.RawMessage `json:"config_groups"`
		} `json:"transform_config"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, err
	}
	if c.Sparsity.Format != "" && c.Sparsity.Format != "dense" {
		return nil, fmt.Errorf("sparsity_config.format: got %.200q, want none", c.Sparsity.Format)
	}
	if len(c.Transform.Groups) > 0 {
		return nil, errors.New("transform_config: got config_groups, want none: transforms of activations are not computed")
	}
	var s compressed
	var err error
	if s.ignore, err = parseTargets(c.Ignore); err != nil {
		return nil, fmt.Errorf("ignore: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		g, err := parseGroup(c.Groups[name], c.Format)
		if err != nil {
			return nil, fmt.Errorf("config_groups.%.200s: %w", name, err)
		}
		if g.Weights != nil {
			s.groups = append(s.groups, *g)
		}
	}
	return s, nil
}

func parseGroup(raw json.RawMessage, format string) (g *group, err error) {
	if err := json.Unmarshal(raw, &g); err != nil {
		return nil, err
	}
	if g == nil {
		return nil, errors.New("got null, want an object")
	}
	if g.targets, err = parseTargets(g.Targets); err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	if g.Weights == nil {
		return g, nil // of activations alone
	}
	var known bool
	g.Format = cmp.Or(g.Format, format)
	if g.layout, known = layoutOf[g.Format]; !known {
		return nil, fmt.Errorf("format: got %.200q, want one of: %s", g.Format, strings.Join(slices.Sorted(maps.Keys(layoutOf)), ", "))
	}
	w := g.Weights
	if !slices.Contains(g.layout.bits[w.Type], w.Bits) {
		return nil, fmt.Errorf("weights: got type %.200q of %d bits in %s, want float of 8 bits or int of up to 8, and int of 4 or 8 in pack-quantized", w.Type, w.Bits, g.Format)
	}
	if err := w.resolve(); err != nil {
		return nil, fmt.Errorf("weights.%w", err)
	}
	return g, nil
}

// resolve checks the options and finds the size of blocks.
func (w *codeOptions) resolve() error {
	if w.Type == "float" && w.zeros() {
		return errors.New("symmetric: got false of type float, want true")
	}
	switch w.Strategy {
	case "tensor":
	case "channel":
		w.rows = 1
	case "group":
		if w.rows, w.cols = 1, w.Size; w.Size < 1 {
			return fmt.Errorf("group_size: got %d, want at least 1", w.Size)
		}
	case "block":
		var block []int
		if err := json.Unmarshal(w.Block, &block); err != nil || len(block) != 2 || block[0] < 1 || block[1] < 1 {
			return fmt.Errorf("block_structure: got %.200s, want two positive numbers", w.Block)
		}
		w.rows, w.cols = block[0], block[1]
	default:
		return fmt.Errorf("strategy: got %.200q, want one of: block, channel, group, tensor", w.Strategy)
	}
	return nil
}

// zeros tells that there are zero points.
func (w *codeOptions) zeros() bool { return w.Symmetric != nil && !*w.Symmetric }

// targets are names of modules, patterns of names behind "re:", and classes of modules.
type targets struct {
	names, classes []string
	patterns       []*regexp.Regexp
}

func parseTargets(all []string) (t targets, err error) {
	for _, target := range all {
		t.names, t.classes = append(t.names, target), append(t.classes, target)
		if pattern, ok := strings.CutPrefix(target, "re:"); ok {
			r, err := regexp.Compile(`^(?:` + pattern + `)`)
			if err != nil {
				return t, fmt.Errorf("%.200q: %w", target, err)
			}
			t.patterns = append(t.patterns, r)
		}
	}
	return t, nil
}

// match is how closely a linear layer is meant: 3 by its name, 2 by a pattern, 1 by its class, 0 not.
func (t *targets) match(module string) int {
	switch {
	case slices.Contains(t.names, module):
		return 3
	case slices.ContainsFunc(t.patterns, func(r *regexp.Regexp) bool { return r.MatchString(module) }):
		return 2
	case slices.Contains(t.classes, "Linear"):
		return 1
	}
	return 0
}

func (c compressed) find(f *finder) {
	// Scales of activations and of cached keys and values, which are not rounded here.
	f.drop("input_scale", "input_zero_point", "output_scale", "output_zero_point", "k_scale", "v_scale", "q_scale")
	for _, m := range f.modules("weight", "weight_packed", "weight_scale") {
		info, _ := f.weights.Info(m.name + ".weight")
		if info.DType != "F8_E4M3" && info.DType != "I8" && !m.hasTensor("weight_packed") && !m.hasTensor("weight_scale") {
			continue
		}
		var found *group
		best := 0
		for i := range c.groups {
			if n := c.groups[i].targets.match(m.name); n > best {
				best, found = n, &c.groups[i]
			}
		}
		switch {
		case found == nil:
			m.reportFault("weight", "quantised, and no targets of quantization_config.config_groups name it")
		case c.ignore.match(m.name) > 0:
			m.reportFault("weight", "quantised, and quantization_config.ignore names it")
		default:
			found.layout.find(m, found)
		}
	}
}

// codes names the codes of blocks. Some blocks have zero points: packed ones have 4 bits as their codes, others
// may be any.
func (g *group) codes(zeros, packed bool) string {
	switch {
	case g.Weights.Type == "float":
		return "E4M3"
	case g.Format == "pack-quantized" && g.Weights.Bits == 4 && (packed || !zeros):
		return "I4"
	case zeros:
		return "I8Z"
	}
	return "I8"
}

// packsZeros tells that zero points are packed along columns.
func (g *group) packsZeros() bool {
	return g.Weights.zeros() && g.Format == "pack-quantized" && (g.Weights.Strategy == "channel" || g.Weights.Strategy == "group")
}

// stored is that of the first group, with scales as most are.
func (c compressed) stored(_ string, cols int) kernels.DType {
	if len(c.groups) == 0 {
		return kernels.BF16
	}
	g := c.groups[0]
	return typeOf(g.codes(g.Weights.zeros(), g.packsZeros()), "BF16", cols, cmp.Or(g.Weights.cols, cols))
}

// plainCodes finds a module whose codes are bytes.
func plainCodes(m *module, g *group) {
	dtype, values := "I8", &signed
	if g.Weights.Type == "float" {
		dtype, values = "F8_E4M3", &formats.E4M3
	}
	if rows, cols, ok := m.matrixShape("weight", dtype); ok {
		m.compressed(rows, cols, g, rowCodes{stride: cols, bits: 8, values: values})
	}
}

// packedCodes finds a module whose codes are packed into words.
func packedCodes(m *module, g *group) {
	rows, words, ok := m.matrixShape("weight_packed", "I32")
	if !ok {
		return
	}
	shape := m.readIntegers("weight_shape", []string{"I64", "I32"}, 2)
	if shape == nil {
		return
	}
	perWord := 32 / g.Weights.Bits
	if shape[0] != rows || shape[1] < 1 || tileCount(shape[1], perWord) != words {
		m.reportFault("weight_packed", "shape [%d %d], want that of %d-bit codes of weight_shape %v", rows, words, g.Weights.Bits, shape)
		return
	}
	m.compressed(rows, shape[1], g, rowCodes{stride: 4 * words, bits: g.Weights.Bits, values: &small})
}

// compressed finds the scales and zero points of codes, which are the only tensor used so far.
func (m *module) compressed(rows, cols int, g *group, codes rowCodes) {
	w := g.Weights
	c := &gridMatrix{rows: rows, cols: cols, rowCodes: codes, zeros: w.zeros() || m.hasTensor("weight_zero_point"), packed: g.packsZeros()}
	c.codes, c.grid = g.codes(c.zeros, c.packed), newGrid(rows, cols, w.rows, w.cols)
	if w.Strategy == "group" && cols%w.cols != 0 {
		m.reportFault("weight", "%d columns, want a multiple of group_size %d", cols, w.cols)
	}
	shapes := [][]int{{tileCount(rows, c.blockRows), c.width}}
	if w.Strategy == "tensor" {
		shapes = [][]int{{1}, {}}
	}
	c.scaleType = m.use("weight_scale", floatTypes, shapes...)
	c.product = c.scaleType
	switch {
	case c.packed:
		m.use("weight_zero_point", []string{"I32"}, []int{tileCount(rows, 32/w.Bits), c.width})
	case c.zeros:
		m.use("weight_zero_point", []string{"I8"}, shapes...)
	}
	if g.Format == "pack-quantized" {
		c.middle = float32(int(1) << (w.Bits - 1))
		if w.Strategy == "group" && m.hasTensor("weight_g_idx") {
			c.group = m.columnGroups(cols, w.cols, c.width)
		}
	}
	m.showGrid(c)
}

// columnGroups reads weight_g_idx; nil where columns are in order. A −1 in it says that they are.
// The reference sorts columns by it and cuts them into groups of one size, which only means the
// same where the groups are of that size.
func (m *module) columnGroups(cols, size, groups int) []int {
	index := m.readIntegers("weight_g_idx", []string{"I32"}, cols)
	if index == nil || slices.Contains(index, -1) {
		return nil
	}
	count, ordered := make([]int, groups), true
	for i, g := range index {
		ordered = ordered && g == i/size
		if g < 0 || g >= groups {
			m.reportFault("weight_g_idx", "column %d is of group %d, want one of %d", i, g, groups)
			return nil
		}
		count[g]++
	}
	for g, n := range count {
		if n != size {
			m.reportFault("weight_g_idx", "group %d has %d columns, want group_size %d", g, n, size)
			return nil
		}
	}
	if ordered {
		return nil
	}
	return index
}

// unpackRows are codes [rows, cols] that are packed along columns.
func unpackRows(data []byte, rows, cols, bits int) []float32 {
	x := make([]float32, rows*cols)
	perWord := 32 / bits
	for r := range rows {
		for c := range cols {
			x[r*cols+c] = float32(word(data, r/perWord*cols+c) >> (r % perWord * bits) & (1<<bits - 1))
		}
	}
	return x
}

// signed are the values of codes in two's complement.
var signed = table(func(b int) int { return int(int8(b)) })
