package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"glimpse/checkpoints"
	"glimpse/checkpoints/quantized"
	"glimpse/internal/listing"
	"glimpse/internal/modelfile"
	"glimpse/kernels"
	_ "glimpse/kernels/backends" // Options.Device names one
	"glimpse/kernels/memcount"
	"glimpse/model/builtin"
	"glimpse/model/chat"
	"glimpse/model/gguf"
	"glimpse/model/tokenizer"
)

// Model is a frozen model in a backend's memory. It is immutable and safe for
// concurrent use.
type Model struct {
	Name    string // Options.Name, or else the folder's; "glimpse-reference" is the built-in model
	Config  Config
	Network *Network
	// Backend is the device, the first one of several: see On.
	Backend kernels.Backend
	// Notes say, for the user, what of the folder is not used, or not yet wrong.
	Notes []string
	// DeviceChoice says which device was chosen and why; empty where one was named.
	DeviceChoice string
	// Tokenizer is nil where the folder has none; NeedTokenizer then says why.
	Tokenizer    *tokenizer.Tokenizer
	tokenizerErr error
	chat         chat.Options                   // what Options.Chat says
	source       chat.Source                    // Options.Template
	template     func() (*chat.Template, error) // that Tokenizer has, parsed once

	cacheDType kernels.DType // Invalid: Backend.Compute()
	keys       *keyRounding  // nil: it is not measured
	cacheName  string        // that it was chosen by

	generation *Generation // nil without stored weights

	folder   fs.FS
	weights  *checkpoints.Weights // nil without stored weights
	cut      bool                 // the weights belong to another model
	identity *identity            // of the weights
	stages   []Stage              // nil: all is on Backend
	family   Family
	shapes   *shapes           // of models without stored weights
	counter  *memcount.Counter // the Backend of a model that Counted made

	ropeMu sync.Mutex
	tables map[ropeKey]*kernels.RoPETable
}

// Options are the settings of Open.
type Options struct {
	// Device names the kernels backend: a registered one, cuda:N, or auto for a GPU
	// where there is one. "" is "cpu". A list, as kernels.DeviceList takes it, shares the
	// layers out.
	Device string
	// Name is what the model is called in reports and adapters; "" is the folder's
	// name.
	Name string
	// CacheDType is the type of caches, see SetCacheDType; "" is float32.
	CacheDType string
	// Exact computes in float32 throughout, on a processor: rows, weights, and keys and values of any CacheDType that chooses, see
	// kernels.Backend.Exact.
	Exact bool
	// Chat is what chat templates see beside the messages: Extra, Tools and Now, which
	// is the time of opening if it is zero.
	Chat chat.Options
	// Template is the chat template in the place of the model's own; zero: its own.
	Template chat.Source
	// BeforeWeights, where it is set, sees the model before its weights are loaded:
	// configuration, backend and tokenizer are there, Counted works, and so does SHA256,
	// which reads the weights. Its error ends Open.
	BeforeWeights func(m *Model) error
}

// Open reads a Hugging Face folder: config.json, safetensors weights (mapped, not
// copied), generation_config.json and, where it is there, the tokenizer; or a GGUF file. Quantised
// weights of a folder are widened to bf16, blocks of a GGUF file where the device does not multiply by them. The empty path is the built-in reference model. The caller closes the model.
func Open(path string, opt Options) (*Model, error) {
	if path == "" {
		return OpenFS(builtin.FS(), builtin.Name, opt)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	} else if gguf.Is(path) {
		return openGGUF(path, opt)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open model %s: not a folder; want a Hugging Face model folder with config.json and safetensors weights, or a GGUF file", path)
	}
	return openFolder(os.DirFS(path), cmp.Or(opt.Name, filepath.Base(abs)), cmp.Or(opt.Name, path), opt, func() (*checkpoints.Weights, error) { return checkpoints.OpenWeights(path) })
}

func openGGUF(path string, opt Options) (*Model, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	m, err := openFolder(file.Folder, cmp.Or(opt.Name, gguf.Name(path)), cmp.Or(opt.Name, path), opt, file.Weights)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	m.Notes = append(file.Notes, m.Notes...)
	return m, nil
}

// OpenFS is Open for a folder in a file system such as embed.FS; the weights are
// read into memory.
func OpenFS(folder fs.FS, name string, opt Options) (*Model, error) {
	return openFolder(folder, name, name, opt, func() (*checkpoints.Weights, error) { return checkpoints.OpenWeightsFS(folder, ".") })
}

// openFolder opens the model name; errors name what was given for it.
func openFolder(folder fs.FS, name, given string, opt Options, weights func() (*checkpoints.Weights, error)) (m *Model, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open model %s: %w", given, err)
		}
	}()
	defer kernels.CatchDevice(&err)
	if err := errors.Join(CheckCacheDType(opt.CacheDType), CheckExact(opt.Exact, opt.CacheDType)); err != nil {
		return nil, err
	}
	device, why := kernels.ChooseDevice(cmp.Or(opt.Device, "cpu"))
	devices, err := kernels.OpenList(device)
	for i := range devices {
		if opt.Exact && err == nil {
			devices[i], err = devices[i].Exact()
		}
	}
	if err != nil {
		return nil, err
	}
	family, config, err := readConfig(folder)
	if err != nil {
		return nil, err
	}
	stored, err := weights()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			stored.Close()
		}
	}()
	if err := stored.SplitExperts(); err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if config.quantized != nil {
		if err := config.quantized.Show(stored); err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
	}
	m = &Model{Name: name, Config: *config, Notes: config.notes, DeviceChoice: why, folder: folder, weights: stored, family: family, cacheName: opt.CacheDType, chat: opt.Chat, source: opt.Template}
	if m.chat.Now.IsZero() {
		m.chat.Now = time.Now()
	}
	m.ReadTokenizer()
	m.endTurns()
	if m.generation, err = readGeneration(folder, &m.Config); err != nil {
		return nil, err
	}
	b := &Binder{}
	network := m.Config.layout.bind(&m.Config, b)
	if err := m.Config.computable(network, b, devices); err != nil {
		return nil, err
	}
	if err := m.canonicalNames(b.slots); err != nil {
		return nil, err
	}
	if err := m.place(devices, b.slots, m.slotBytes); err != nil {
		return nil, err
	}
	m.identity = identityOf(b.slots)
	if opt.BeforeWeights != nil {
		if err := opt.BeforeWeights(m); err != nil {
			return nil, err
		}
	}
	m.Network = network
	if err := m.loadSlots(b); err != nil {
		return nil, err
	}
	if err := m.SetCacheDType(opt.CacheDType); err != nil {
		return nil, err
	}
	if m.tokenizerErr == nil && m.Tokenizer.VocabSize() > m.Config.Vocab {
		m.addNote("tokenizer.json: %d tokens for %d rows of the embedding: a text with a later one is refused", m.Tokenizer.VocabSize(), m.Config.Vocab)
	}
	return m, nil
}

// Close releases the mapped weights; the model, and those that were cut from it,
// must not be used afterwards.
func (m *Model) Close() error {
	if m.cut || m.weights == nil {
		return nil
	}
	return m.weights.Close()
}

// Cut is the model that has only the first layers, in the same memory: its head
// reads what leaves the last of them. It is a poor but cheap draft of the whole.
func (m *Model) Cut(layers int) (*Model, error) {
	if layers < 1 || layers > m.Config.Layers {
		return nil, fmt.Errorf("cut model %s: got %d layers, want 1 to %d", m.Name, layers, m.Config.Layers)
	}
	c, n := m.Config, *m.Network
	c.cutLayers(layers)
	n.Layers = n.Layers[:layers]
	cut := &Model{
		Name: fmt.Sprintf("%s, first %d layers", m.Name, layers), Config: c, Network: &n, Backend: m.Backend,
		Tokenizer: m.Tokenizer, tokenizerErr: m.tokenizerErr, template: m.template, generation: m.generation, folder: m.folder, weights: m.weights, identity: m.identity, cut: true, cacheDType: m.cacheDType, cacheName: m.cacheName, family: m.family, counter: m.counter,
	}
	for _, s := range m.stages {
		if s.From < layers {
			s.To = min(s.To, layers)
			cut.stages = append(cut.stages, s)
		}
	}
	cut.placeHead(m.End())
	return cut, nil
}

// SameVocabulary is an error unless token ids mean the same to both models: their
// tokenizers have the same tokens, where both have one, and otherwise their
// embeddings the same number of rows. Rows beyond the tokenizer's tokens may
// differ in number; families pad them.
func (m *Model) SameVocabulary(other *Model) error {
	if m.tokenizerErr != nil || other.tokenizerErr != nil {
		if m.Config.Vocab != other.Config.Vocab {
			return fmt.Errorf("vocabulary of %d tokens, want %d as %s has", other.Config.Vocab, m.Config.Vocab, m.Name)
		}
		return nil
	}
	if got, want := other.Tokenizer.VocabSize(), m.Tokenizer.VocabSize(); got != want {
		return fmt.Errorf("vocabulary of %d tokens, want %d as %s has", got, want, m.Name)
	}
	for id := range int32(m.Tokenizer.VocabSize()) {
		want, _ := m.Tokenizer.IDToToken(id)
		if got, _ := other.Tokenizer.IDToToken(id); got != want {
			return fmt.Errorf("token %d is %q, want %q as %s has", id, got, want, m.Name)
		}
	}
	return nil
}

// NeedTokenizer returns the tokenizer, or the reason why there is none.
func (m *Model) NeedTokenizer() (*tokenizer.Tokenizer, error) {
	if m.tokenizerErr != nil {
		return nil, fmt.Errorf("model %s: tokenizer: %w", m.Name, m.tokenizerErr)
	}
	return m.Tokenizer, nil
}

// WeightBytes is the size of the weights in the types that passes read: as in the file, or
// BF16 of blocks where the device does not multiply by them.
func (m *Model) WeightBytes() int64 {
	if m.weights == nil {
		return m.shapes.bytes
	}
	return placedBytes(m.weights, m.Backend)
}

// placedBytes is the memory that tensors take on a device.
func placedBytes(w *checkpoints.Weights, on kernels.Backend) (n int64) {
	for _, name := range w.Names() {
		info, _ := w.Info(name)
		if t, err := kernels.ParseStored(info.DType); err == nil {
			info.Bytes = on.Placed(t).Bytes(kernels.ShapeLen(info.Shape))
		}
		n += int64(info.Bytes)
	}
	return n
}

// ReadTokenizer reads the tokenizer of the model's files, as Open does and OpenShapes does not. Without one,
// NeedTokenizer says why.
func (m *Model) ReadTokenizer() {
	m.Tokenizer, m.tokenizerErr = tokenizer.LoadDir(m.folder)
	m.UseTemplate(m.source)
	m.template = sync.OnceValues(func() (*chat.Template, error) { return chat.Parse(m.Tokenizer.Config().ChatTemplate) })
}

// UseTemplate puts a chat template in the place of the model's own, as Options.Template does, before anybody asks for it.
func (m *Model) UseTemplate(s chat.Source) {
	if m.source = s; s.Text != "" && m.Tokenizer != nil {
		m.Tokenizer.SetChatTemplate(s.Text, s.From)
	}
}

// GivenTemplate is where the chat template in the place of the model's own is from, and the SHA-256 of its text; "" without one.
func (m *Model) GivenTemplate() (from, sum string) {
	if m.source.Text == "" {
		return "", ""
	}
	return m.source.From, fmt.Sprintf("%x", sha256.Sum256([]byte(m.source.Text)))
}

// Folder is the model's files.
func (m *Model) Folder() fs.FS { return m.folder }

func readConfig(folder fs.FS) (Family, *Config, error) {
	raw, err := readSmall(folder, "config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return Family{}, nil, fmt.Errorf("%w; want a Hugging Face model folder with config.json and safetensors weights", err)
	}
	if err != nil {
		return Family{}, nil, err
	}
	raw, multimodal, err := textConfig(raw)
	if err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	var head struct {
		Architectures []string        `json:"architectures"`
		ModelType     string          `json:"model_type"`
		BOS           json.RawMessage `json:"bos_token_id"`
		EOS           json.RawMessage `json:"eos_token_id"`
		Quantization  json.RawMessage `json:"quantization_config"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	architecture, err := architectureOf(head.Architectures, head.ModelType)
	if err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	family, err := Families.Lookup(architecture)
	if err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	// Keys that any architecture can have, and that would change what it computes.
	var stored *quantized.Config
	if given(head.Quantization) {
		if stored, err = quantized.Parse(head.Quantization); err != nil {
			return Family{}, nil, fmt.Errorf("config.json: quantization_config: %w", err)
		}
	}
	c, err := family.ParseConfig(raw)
	if err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	if c.quantized = stored; multimodal != "" {
		c.addNote("config.json: of %.60s the text model is read, %s", multimodal, architecture)
	}
	if 2*len(c.RoPEFreqs) != c.HeadDim && !family.PartialRotary {
		return Family{}, nil, fmt.Errorf("config.json: partial_rotary_factor: got %v, want 1", float64(2*len(c.RoPEFreqs))/float64(c.HeadDim))
	}
	c.Architecture, c.BOS = architecture, -1
	// generation_config.json lists all end tokens; config.json often only one.
	source := map[string]string{"bos_token_id": "config.json", "eos_token_id": "config.json"}
	if gen, err := readSmall(folder, "generation_config.json"); err == nil {
		var ids map[string]json.RawMessage
		if err := json.Unmarshal(gen, &ids); err != nil {
			return Family{}, nil, fmt.Errorf("generation_config.json: %w", err)
		}
		for key, raw := range map[string]*json.RawMessage{"bos_token_id": &head.BOS, "eos_token_id": &head.EOS} {
			if id, ok := ids[key]; ok {
				*raw, source[key] = id, "generation_config.json"
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Family{}, nil, err
	}
	bos, err := c.tokenIDs(source["bos_token_id"], "bos_token_id", head.BOS, family.BOS)
	if err != nil {
		return Family{}, nil, err
	}
	if len(bos) > 0 {
		c.BOS = bos[0]
	}
	if c.EOS, err = c.tokenIDs(source["eos_token_id"], "eos_token_id", head.EOS, family.EOS); err != nil {
		return Family{}, nil, err
	}
	return family, c, nil
}

func readSmall(folder fs.FS, name string) ([]byte, error) {
	return modelfile.ReadJSON(folder, name, modelfile.Limit(name))
}

// loadSlots fills the binder's slots from the weights; everything missing, surplus
// and misshapen is in one error.
func (m *Model) loadSlots(b *Binder) error {
	var errs []error
	wanted := make(map[string]bool, len(b.slots))
	for _, s := range b.slots {
		wanted[s.name] = true
		info, ok := m.weights.Info(s.name)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: missing, want shape %v", s.name, s.shape))
			continue
		}
		if !slices.Equal(info.Shape, s.shape) {
			errs = append(errs, fmt.Errorf("%s: shape %v, want %v", s.name, info.Shape, s.shape))
			continue
		}
		view, err := m.weights.Tensor(s.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		view.Data = reordered(view.Data, s.order)
		t, err := view.Tensor()
		if err == nil && t.DType == kernels.I32 {
			err = fmt.Errorf("stored as I32, want a floating-point type")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		on := m.deviceOf(s)
		if s.compute || t.DType == kernels.F64 { // which no backend need multiply by
			c := on.Alloc(on.Compute(), s.shape...)
			if times := cmp.Or(s.times, 1); s.plus != 0 || times != 1 {
				values := t.Float64s()
				for i := range values {
					values[i] = (values[i] + s.plus) * times
				}
				t = kernels.FromF64(values, s.shape...)
			}
			kernels.Convert(c, t)
			t = c
		} else {
			t = on.Place(t)
		}
		s.set(t)
	}
	var unused, surplus []string
	for _, name := range m.weights.Names() {
		info, _ := m.weights.Info(name)
		switch {
		// Tied checkpoints may store the head a second time.
		case wanted[name] || m.Config.TieEmbeddings && name == "lm_head.weight":
		case isBuffer(name, info.Shape), m.Config.isFurther(name), m.Config.quantized != nil && m.isZeroBias(name):
			unused = append(unused, name)
		default:
			surplus = append(surplus, name)
		}
	}
	if err := errors.Join(listing.JoinErrors(errs), listing.JoinErrors(m.surplus(surplus, wanted))); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if len(unused) > 0 {
		m.addNote("weights: %d tensors are not used: %s", len(unused), listing.Names(unused))
	}
	for _, f := range b.tied {
		f(m)
	}
	for _, f := range b.loaded {
		if err := f(); err != nil {
			return fmt.Errorf("weights: %w", err)
		}
	}
	if m.Config.TieEmbeddings {
		m.placeHead(m.Backend)
	}
	return nil
}

// isZeroBias tells that a tensor is a bias of zeros, which AutoGPTQ stores of modules without one.
func (m *Model) isZeroBias(name string) bool {
	if !strings.HasSuffix(name, ".bias") {
		return false
	}
	view, err := m.weights.Tensor(name)
	return err == nil && !slices.ContainsFunc(view.Data, func(b byte) bool { return b != 0 })
}

// RoPE returns the table of a device that rotates queries (QProj) or keys (KProj) of layer l and covers the positions, of long
// prompts or of others; it grows in powers of two. Layers that are rotated alike have one, and so have queries and keys but
// for a PositionScale. It is nil where the layer does not rotate.
func (m *Model) RoPE(on kernels.Backend, l int, module Module, pos []int32, long bool) *kernels.RoPETable {
	of, need := m.Config.RoPEOf(l), int(slices.Max(pos))+1
	freqs := of.Freqs(long)
	if len(freqs) == 0 {
		return nil
	}
	long = long && of.LongRoPE != nil
	m.ropeMu.Lock()
	defer m.ropeMu.Unlock()
	scale := of.PositionScale
	if module != QProj {
		scale = nil
	}
	key := ropeKey{on, of, long, scale != nil}
	table := m.tables[key]
	if table == nil || table.Positions() < need {
		n := 1024
		for n < need {
			n *= 2
		}
		table = kernels.NewRoPETable(on, freqs, n, of.RoPEScale)
		if scale != nil {
			table = scale.scaleTable(on, table)
		}
		if m.tables == nil {
			m.tables = make(map[ropeKey]*kernels.RoPETable)
		}
		m.tables[key] = table
	}
	return table
}

// ropeKey is what a table of rotations depends on but for its length.
type ropeKey struct {
	on   kernels.Backend
	of   *RoPE
	long bool
	// scaled is of queries alone, by their PositionScale.
	scaled bool
}

// scaleTable is a table times the scale at every position.
func (s *PositionScale) scaleTable(on kernels.Backend, table *kernels.RoPETable) *kernels.RoPETable {
	rows, scales := make([]int32, table.Positions()), make([]float64, table.Positions())
	for p := range rows {
		rows[p], scales[p] = int32(p), s.At(p)
	}
	scaled := func(x *kernels.Tensor) *kernels.Tensor {
		y := on.Alloc(x.DType, x.Shape...)
		on.Fill(y, 0)
		on.AddRows(y, x, rows, scales)
		return y
	}
	return &kernels.RoPETable{Cos: scaled(table.Cos), Sin: scaled(table.Sin)}
}

// ErrNonFinite is returned when a pass gives NaN or infinite numbers.
var ErrNonFinite = errors.New("not finite")

// ErrNonFiniteWeights is the case of ErrNonFinite that no other input cures.
var ErrNonFiniteWeights = fmt.Errorf("weights are %w", ErrNonFinite)

// ExplainNonFinite looks for the weight that made a pass non-finite: it names the
// first one that is NaN or infinite, or says that none is.
func (m *Model) ExplainNonFinite() error {
	if m.weights == nil {
		return fmt.Errorf("model %s: a pass was %w", m.Name, ErrNonFinite)
	}
	for _, name := range m.weights.Names() {
		view, err := m.weights.Tensor(name)
		if err != nil || isBuffer(name, view.Shape) {
			continue
		}
		t, err := view.Tensor()
		if err != nil {
			continue
		}
		var some [4096]float64
		for i := 0; i < t.Len(); i += len(some) {
			values := some[:min(len(some), t.Len()-i)]
			kernels.Read(values, t, i)
			for j, v := range values {
				if v-v != 0 {
					return fmt.Errorf("model %s: %s: element %d is %v, want a finite number: %w", m.Name, name, i+j, v, ErrNonFiniteWeights)
				}
			}
		}
	}
	return fmt.Errorf("model %s: a pass was %w although all weights are finite", m.Name, ErrNonFinite)
}

// RowsAfter places rows after a prompt of next tokens, which are rotated by the frequencies of
// long prompts or not: their positions, and the tables that rotate their queries and keys, by layer.
func (m *Model) RowsAfter(next int32, rows int, long bool) (pos []int32, queries, keys []*kernels.RoPETable) {
	pos = make([]int32, rows)
	for i := range pos {
		pos[i] = next + int32(i)
	}
	for l := range m.Config.Layers {
		queries = append(queries, m.RoPE(m.On(l), l, QProj, pos, long))
		keys = append(keys, m.RoPE(m.On(l), l, KProj, pos, long))
	}
	return pos, queries, keys
}

// Over is m on another backend with the same memory, as for a step that
// is recorded. It has no weights to load.
func (m *Model) Over(b kernels.Backend) *Model {
	return &Model{Name: m.Name, Config: m.Config, Network: m.Network, Backend: b, cacheDType: m.cacheDType, cut: true}
}
