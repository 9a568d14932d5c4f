package checkpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// Bounds of adapters, when they are made and when they are read.
const (
	// MaxRows is the most learned rows: they run after every prompt.
	MaxRows = 4096
	// maxHidden is wider than any model.
	maxHidden = 1 << 20
)

// Modules are the linear layers that LoRA factors can belong to, in the order in
// which they are written. Behind them are the modules of experts: experts.E.gate_proj, experts.E.up_proj and
// experts.E.down_proj of expert E, in the order of the experts.
var Modules = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// maxExperts is more than any layer has.
const maxExperts = 1 << 14

// moduleOrder is a module's place in the order in which modules are written; -1 for any other name.
func moduleOrder(module string) int {
	at := slices.Index(Modules, module)
	if rest, ok := strings.CutPrefix(module, "experts."); ok {
		number, proj, _ := strings.Cut(rest, ".")
		e, err := strconv.Atoi(number)
		if at = slices.Index(Modules, proj); at < 0 || peftBlock(proj) != "mlp" || err != nil || e < 0 || e >= maxExperts || strconv.Itoa(e) != number {
			return -1
		}
		at += (e + 1) * len(Modules)
	}
	return at
}

// Adapter is a trained adapter of any kind. It is learned rows that are appended to
// the prompt and, for the kinds that have them, LoRA factors that act on those
// rows only; or it is gates, a layer each.
type Adapter struct {
	Kind string // registered name of the kind, such as "lookaheadkv"
	Base BaseModel
	// BF16 tells that files have the numbers as BF16 rather than F32. In memory they are float32 in
	// either case, and then those that a bf16 can be, see SetDType.
	BF16 bool

	Embeddings Matrix // the learned rows [n, hiddenSize]; none of gates

	// LoRA is nil for a kind without it; then Rank, Alpha and InvocationTokens
	// are zero. A module need not be there in every layer: in the last one only
	// queries and keys influence the attention and get a gradient.
	LoRA  map[LoRAKey]LoRAFactors
	Rank  int     // of every factor
	Alpha float64 // the product B·A is scaled by Alpha/Rank
	// LayersDiffer tells that a module is not as wide in every layer, as in Gemma 4, whose layers have different heads.
	LayersDiffer bool
	// InvocationTokens are token ids that tell PEFT where the adapter
	// starts to act; without any it would act on every token.
	InvocationTokens []int

	Gates []GateLayer // of every layer; nil of learned rows

	Loss          string // name of the training loss, such as "kl"
	PoolingKernel int    // width of the max-pool over importance scores, odd; 1 for none

	Training json.RawMessage    // resolved training settings, a JSON object
	Data     DataSource         // what it was trained on
	Metrics  map[string]float64 // at export, by name; finite

	// Calibration is the file CalibrationFile beside the adapter, as it is; nil where there is none. It is no part of
	// the adapter and may be damaged, see ParseCalibration.
	Calibration []byte
}

// BaseModel says which model an adapter belongs to. Its json tags are the keys of the manifest.
type BaseModel struct {
	Name   string `json:"name"`             // for people and PEFT, such as "meta-llama/Llama-3.2-1B-Instruct"
	SHA256 string `json:"sha256"`           // of the weights, see model.Model.SHA256 and, of earlier versions, Weights.SHA256
	Format string `json:"format,omitempty"` // of the weights that passes read in training, see model.Model.WeightFormat; "" of earlier versions
}

// DataSource describes training data.
type DataSource struct {
	Description string `json:"description"`
	Seed        int64  `json:"seed"`
}

// LoRAKey names a linear layer: Module is one of Modules, or of an expert's.
type LoRAKey struct {
	Layer  int
	Module string
}

func (k LoRAKey) String() string { return fmt.Sprintf("layer %d %s", k.Layer, k.Module) }

// LoRAFactors are A [rank, in] and B [out, rank]; the layer's output gains
// Alpha/Rank · B·(A·x).
type LoRAFactors struct{ A, B Matrix }

// Matrix is dense and row-major: len(Data) = Rows · Cols.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// LoRAModules returns the modules that have factors in some layer, in their order.
func (a *Adapter) LoRAModules() []string {
	has := make(map[string]bool)
	for k := range a.LoRA {
		has[k.Module] = true
	}
	return slices.SortedFunc(maps.Keys(has), func(x, y string) int { return moduleOrder(x) - moduleOrder(y) })
}

// loraKeys returns the keys by layer, then module.
func (a *Adapter) loraKeys() []LoRAKey {
	return slices.SortedFunc(maps.Keys(a.LoRA), func(x, y LoRAKey) int {
		if x.Layer != y.Layer {
			return x.Layer - y.Layer
		}
		return moduleOrder(x.Module) - moduleOrder(y.Module)
	})
}

// DTypes are the names of the types that numbers of adapters are stored in.
var DTypes = []string{"float32", "bf16"}

// SetDType sets the type of the numbers in files by its name, one of DTypes. For bf16 every number is rounded
// to the nearest, ties to even, so that what is computed does not depend on whether it came from files.
func (a *Adapter) SetDType(name string) error {
	if !slices.Contains(DTypes, name) {
		return fmt.Errorf("dtype: got %.40q, want one of: %s", name, strings.Join(DTypes, ", "))
	}
	if a.BF16 = name == "bf16"; !a.BF16 {
		return nil
	}
	a.eachMatrix(func(_ string, m Matrix) Matrix {
		numbers := make([]float32, len(m.Data))
		for i, v := range m.Data {
			numbers[i] = formats.BF16ToF32(formats.F32ToBF16(v))
		}
		m.Data = numbers
		return m
	})
	return a.Validate()
}

// eachMatrix puts what f makes of every matrix in its place, in an order that is always the same. Maps and lists are made anew:
// whoever has the old ones keeps them.
func (a *Adapter) eachMatrix(f func(name string, m Matrix) Matrix) {
	a.Embeddings = f("embeddings", a.Embeddings)
	a.LoRA, a.Gates = maps.Clone(a.LoRA), slices.Clone(a.Gates)
	for _, key := range a.loraKeys() {
		factors := a.LoRA[key]
		a.LoRA[key] = LoRAFactors{A: f(key.String()+" A", factors.A), B: f(key.String()+" B", factors.B)}
	}
	for l, g := range a.Gates {
		a.Gates[l] = make(GateLayer)
		for _, name := range slices.Sorted(maps.Keys(g)) {
			a.Gates[l][name] = f(gateTensorName(l, name), g[name])
		}
	}
}

// SHA256 identifies what the adapter computes, in lower-case hexadecimal: kind, pooling, scale and
// numbers, whatever it was trained on and however its files are laid out.
func (a *Adapter) SHA256() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s pooling %d rank %d alpha %v\n", a.Kind, a.PoolingKernel, a.Rank, a.Alpha)
	all := *a
	all.eachMatrix(func(name string, m Matrix) Matrix {
		v := F32Tensor(name, []int{m.Rows, m.Cols}, m.Data)
		fmt.Fprintf(h, "%s %v %x\n", v.Name, v.Shape, sha256.Sum256(v.Data))
		return m
	})
	return hex.EncodeToString(h.Sum(nil))
}

// Foreign tells that another program has written the adapter, which does not say for which weights.
func (a *Adapter) Foreign() bool { return a.Base == BaseModel{} }

// CheckBase returns an error that is ErrWrongBase, and names both models, if the
// adapter was trained for other weights than those with this hash. The name is
// of the model at hand and only for the message: a renamed folder is the same
// model.
func (a *Adapter) CheckBase(name, sha256 string) error {
	if sha256 == a.Base.SHA256 {
		return nil
	}
	return fmt.Errorf("%w: trained for %q (weights sha256 %s), got %q (weights sha256 %s)",
		ErrWrongBase, a.Base.Name, a.Base.SHA256, name, sha256)
}

// Validate checks that the adapter is complete and consistent: shapes agree with
// each other, every number is finite, names are known. WriteAdapter and
// ReadAdapter call it.
func (a *Adapter) Validate() error {
	switch {
	case !identifier(a.Kind):
		return fmt.Errorf("kind: got %.100q, want a name of lower-case letters, digits and dashes", a.Kind)
	case a.Base.Name == "":
		return fmt.Errorf("base model: name is empty")
	case !isSHA256(a.Base.SHA256):
		return fmt.Errorf("base model: sha256: got %.100q, want 64 lower-case hexadecimal digits", a.Base.SHA256)
	case !identifier(a.Loss):
		return fmt.Errorf("loss: got %.100q, want a name of lower-case letters, digits and dashes", a.Loss)
	}
	if err := kernels.CheckPoolWidth(a.PoolingKernel); err != nil {
		return err
	}
	if a.Gates != nil {
		if a.Embeddings.Rows > 0 || a.LoRA != nil {
			return fmt.Errorf("gates beside learned rows, want either")
		}
		if err := a.validateGates(); err != nil {
			return err
		}
	} else if err := a.validateRows(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.Metrics)) {
		if v := a.Metrics[name]; math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("metric %q: got %v, want a finite number", name, v)
		}
	}
	if _, err := compactObject(a.Training); err != nil {
		return fmt.Errorf("training settings: %w", err)
	}
	return a.validateLoRA()
}

// validateRows checks the learned rows.
func (a *Adapter) validateRows() error {
	if n := a.Embeddings.Rows; n > MaxRows {
		return fmt.Errorf("embeddings: %d rows, want 1 to %d", n, MaxRows)
	}
	if err := a.Embeddings.validateNumbers("embeddings", -1, -1, a.BF16); err != nil {
		return err
	}
	// Norms square them. What else may leave the range of a float32 depends on the prompt,
	// and is found when it does.
	for i := range a.Embeddings.Rows {
		sum := 0.0
		for _, v := range a.Embeddings.Data[i*a.Embeddings.Cols:][:a.Embeddings.Cols] {
			sum += float64(v) * float64(v)
		}
		if sum > math.MaxFloat32 {
			return fmt.Errorf("embeddings: row %d: squares sum to %.3g, want at most %.3g", i, sum, math.MaxFloat32)
		}
	}
	return nil
}

func (a *Adapter) validateLoRA() error {
	if len(a.LoRA) == 0 {
		if a.LoRA != nil || a.Rank != 0 || a.Alpha != 0 || len(a.InvocationTokens) != 0 {
			return fmt.Errorf("LoRA without factors: got rank %d, alpha %v and %d invocation tokens, want all of them or nil",
				a.Rank, a.Alpha, len(a.InvocationTokens))
		}
		return nil
	}
	switch {
	case a.Rank < 1:
		return fmt.Errorf("LoRA rank: got %d, want at least 1", a.Rank)
	case !(a.Alpha > 0) || math.IsInf(a.Alpha, 0):
		return fmt.Errorf("LoRA alpha: got %v, want a positive number", a.Alpha)
	case a.Alpha/float64(a.Rank) > math.MaxFloat32:
		return fmt.Errorf("LoRA alpha: got %v, want at most %.3g times the rank %d", a.Alpha, math.MaxFloat32, a.Rank)
	case len(a.InvocationTokens) == 0 || slices.Min(a.InvocationTokens) < 0:
		return fmt.Errorf("invocation tokens: got %v, want at least one token id", a.InvocationTokens)
	}
	first := make(map[string]LoRAKey) // the layer that sets a module's shape
	for _, key := range a.loraKeys() {
		if key.Layer < 0 || moduleOrder(key.Module) < 0 {
			return fmt.Errorf("LoRA factors for %v: want a layer from 0 and one of, or an expert's: %s", key, strings.Join(Modules, ", "))
		}
		in, out := a.Embeddings.Cols, -1
		if strings.HasSuffix(key.Module, "o_proj") || strings.HasSuffix(key.Module, "down_proj") {
			in, out = out, in
		}
		if f, ok := first[key.Module]; ok && !a.LayersDiffer {
			in, out = a.LoRA[f].A.Cols, a.LoRA[f].B.Rows
		} else {
			first[key.Module] = key
		}
		f := a.LoRA[key]
		if err := f.A.validateNumbers(key.String()+" lora_A", a.Rank, in, a.BF16); err != nil {
			return err
		}
		if err := f.B.validateNumbers(key.String()+" lora_B", out, a.Rank, a.BF16); err != nil {
			return err
		}
	}
	return nil
}

// validateNumbers checks the shape, where -1 stands for any positive number, and that
// every number is finite, and one that a bf16 can be if it is to be.
func (m Matrix) validateNumbers(what string, rows, cols int, bf16 bool) error {
	size := func(n int) string {
		if n < 0 {
			return "any"
		}
		return fmt.Sprint(n)
	}
	if m.Rows < 1 || m.Cols < 1 || rows >= 0 && m.Rows != rows || cols >= 0 && m.Cols != cols {
		return fmt.Errorf("%s: shape [%d %d], want [%s %s]", what, m.Rows, m.Cols, size(rows), size(cols))
	}
	if n, ok := elementCount([]int{m.Rows, m.Cols}); !ok || len(m.Data) != n {
		return fmt.Errorf("%s: %d numbers for shape [%d %d]", what, len(m.Data), m.Rows, m.Cols)
	}
	for i, v := range m.Data {
		if v-v != 0 { // NaN and both infinities
			return fmt.Errorf("%s: element [%d %d] is %v, want a finite number", what, i/m.Cols, i%m.Cols, v)
		}
		if bf16 && math.Float32bits(v)&0xffff != 0 {
			return fmt.Errorf("%s: element [%d %d] is %v, want a number of bf16", what, i/m.Cols, i%m.Cols, v)
		}
	}
	return nil
}

func identifier(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func isSHA256(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }
