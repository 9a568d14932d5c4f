package model

import (
	"context"
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
	"glimpse/kernels"
	"glimpse/model/builtin"
	"glimpse/model/chat"
	"glimpse/model/tokenizer"
)

// Model is a frozen model in a backend's memory. It is immutable and safe for
// concurrent use.
type Model struct {
	Name    string // Options.Name, or else the folder's; "glimpse-reference" is the built-in model
	Config  Config
	Network *Network
	Backend kernels.Backend
	// DeviceChoice says which device was chosen and why; empty where one was named.
	DeviceChoice string
	// Tokenizer is nil where the folder has none; NeedTokenizer then says why.
	Tokenizer    *tokenizer.Tokenizer
	tokenizerErr error
	chat         chat.Options // what Options.Chat says

	cacheDType kernels.DType // Invalid: Backend.Compute()
	cacheName  string        // by which it was chosen

	folder  fs.FS
	weights *checkpoints.Weights // nil for outlines and sketches
	cut     bool                 // the weights belong to another model
	family  Family
	outline *outline // of outlines and sketches

	ropeMu sync.Mutex
	table  *kernels.RoPETable
}

// Options are the settings of Open.
type Options struct {
	// Device names the kernels backend: a registered one, cuda:N, or auto for a GPU
	// where there is one. "" is "cpu".
	Device string
	// Name is what the model is called in reports and adapters; "" is the folder's
	// name.
	Name string
	// CacheDType is the type of caches, see SetCacheDType; "" is float32.
	CacheDType string
	// Chat is what chat templates see beside the messages: Extra, Tools and Now, which
	// is the time of opening if it is zero.
	Chat chat.Options
	// BeforeWeights, where it is set, sees the model before its weights are loaded:
	// configuration, backend and tokenizer are there, and Dry works. Its error ends Open.
	BeforeWeights func(m *Model) error
}

// maxConfig bounds config.json and generation_config.json.
const maxConfig = 1 << 20

// Open reads a Hugging Face folder: config.json, safetensors weights (mapped, not
// copied), generation_config.json and, where it is there, the tokenizer. The empty
// path is the built-in reference model. The caller closes the model.
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
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open model %s: not a folder; want a Hugging Face model folder with config.json and safetensors weights", path)
	}
	name := opt.Name
	if name == "" {
		name = filepath.Base(abs)
	}
	return open(os.DirFS(path), name, opt, func() (*checkpoints.Weights, error) { return checkpoints.OpenWeights(path) })
}

// OpenFS is Open for a folder in a file system such as embed.FS; the weights are
// read into memory.
func OpenFS(folder fs.FS, name string, opt Options) (*Model, error) {
	return open(folder, name, opt, func() (*checkpoints.Weights, error) { return checkpoints.OpenWeightsFS(folder, ".") })
}

func open(folder fs.FS, name string, opt Options, weights func() (*checkpoints.Weights, error)) (m *Model, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open model %s: %w", name, err)
		}
	}()
	defer kernels.CatchDevice(&err)
	device := opt.Device
	if device == "" {
		device = "cpu"
	}
	if err := CheckCacheDType(opt.CacheDType); err != nil {
		return nil, err
	}
	device, why := kernels.ChooseDevice(device)
	backend, err := kernels.Open(device)
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
	m = &Model{Name: name, Config: *config, Backend: backend, DeviceChoice: why, folder: folder, weights: stored, family: family, cacheName: opt.CacheDType, chat: opt.Chat}
	if m.chat.Now.IsZero() {
		m.chat.Now = time.Now()
	}
	m.Tokenizer, m.tokenizerErr = tokenizer.LoadDir(folder)
	if opt.BeforeWeights != nil {
		if err := opt.BeforeWeights(m); err != nil {
			return nil, err
		}
	}
	b := &Binder{}
	m.Network = family.Bind(&m.Config, b)
	if err := m.load(b); err != nil {
		return nil, err
	}
	if err := m.SetCacheDType(opt.CacheDType); err != nil {
		return nil, err
	}
	if m.tokenizerErr == nil && m.Tokenizer.VocabSize() > m.Config.Vocab {
		return nil, fmt.Errorf("tokenizer.json: %d tokens, want at most vocab_size %d", m.Tokenizer.VocabSize(), m.Config.Vocab)
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
	c.Layers, n.Layers = layers, n.Layers[:layers]
	if c.Windows != nil {
		c.Windows = c.Windows[:layers]
	}
	return &Model{
		Name: fmt.Sprintf("%s, first %d layers", m.Name, layers), Config: c, Network: &n, Backend: m.Backend,
		Tokenizer: m.Tokenizer, tokenizerErr: m.tokenizerErr, folder: m.folder, weights: m.weights, cut: true, cacheDType: m.cacheDType, cacheName: m.cacheName, family: m.family,
	}, nil
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

// SHA256 identifies the weights; it is computed on the first call, at about a
// gigabyte a second.
func (m *Model) SHA256(ctx context.Context) (string, error) {
	if m.weights == nil {
		return "", fmt.Errorf("model %s: has no stored weights", m.Name)
	}
	return m.weights.SHA256(ctx, nil)
}

// WeightBytes is the size of the weights as stored.
func (m *Model) WeightBytes() int64 {
	if m.weights == nil {
		return m.outline.bytes
	}
	return m.weights.Bytes()
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
	var head struct {
		Architectures []string        `json:"architectures"`
		BOS           json.RawMessage `json:"bos_token_id"`
		EOS           json.RawMessage `json:"eos_token_id"`
		Quantization  json.RawMessage `json:"quantization_config"`
		PartialRotary *float64        `json:"partial_rotary_factor"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	if len(head.Architectures) == 0 {
		return Family{}, nil, fmt.Errorf("config.json: architectures: got none, want one of: %s", strings.Join(Families.Names(), ", "))
	}
	family, err := Families.Lookup(head.Architectures[0])
	if err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	// Keys that any architecture can have, and that would change what it computes.
	if given(head.Quantization) {
		var q struct {
			Method string `json:"quant_method"`
		}
		if err := json.Unmarshal(head.Quantization, &q); err != nil {
			return Family{}, nil, fmt.Errorf("config.json: quantization_config: %w", err)
		}
		return Family{}, nil, fmt.Errorf("config.json: quantization_config: got quant_method %q, want none: weights must be bf16, f16 or f32", q.Method)
	}
	if head.PartialRotary != nil && *head.PartialRotary != 1 {
		return Family{}, nil, fmt.Errorf("config.json: partial_rotary_factor: got %v, want 1", *head.PartialRotary)
	}
	c, err := family.ParseConfig(raw)
	if err != nil {
		return Family{}, nil, fmt.Errorf("config.json: %w", err)
	}
	c.Architecture, c.BOS = head.Architectures[0], -1
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
	bos, err := tokenIDs("bos_token_id", head.BOS, c.Vocab)
	if err != nil {
		return Family{}, nil, fmt.Errorf("%s: %w", source["bos_token_id"], err)
	}
	if len(bos) > 0 {
		c.BOS = bos[0]
	}
	if c.EOS, err = tokenIDs("eos_token_id", head.EOS, c.Vocab); err != nil {
		return Family{}, nil, fmt.Errorf("%s: %w", source["eos_token_id"], err)
	}
	return family, c, nil
}

// tokenIDs reads one id or a list.
func tokenIDs(key string, raw json.RawMessage, vocab int) ([]int32, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var ids []int32
	if raw[0] != '[' {
		raw = json.RawMessage("[" + string(raw) + "]")
	}
	if err := json.Unmarshal(raw, &ids); err != nil {
		return nil, fmt.Errorf("%s: got %s, want a token id or a list of them", key, raw)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("%s: got %d, want 0 to %d", key, id, vocab-1)
		}
	}
	return ids, nil
}

func readSmall(folder fs.FS, name string) ([]byte, error) {
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxConfig {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", name, info.Size(), maxConfig)
	}
	return fs.ReadFile(folder, name)
}

// load fills the binder's slots from the weights; everything missing, surplus
// and misshapen is in one error.
func (m *Model) load(b *Binder) error {
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
		t, err := kernels.FromBytes(view.DType, view.Data, view.Shape...)
		if err == nil && t.DType == kernels.I32 {
			err = fmt.Errorf("stored as I32, want a floating-point type")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		if s.compute || t.DType == kernels.F64 { // which no backend need multiply by
			c := m.Backend.Alloc(m.Backend.Compute(), s.shape...)
			kernels.Convert(c, t)
			t = c
		} else {
			t = kernels.Place(m.Backend, t)
		}
		s.set(t)
	}
	for _, name := range m.weights.Names() {
		// Old checkpoints store the rotary frequencies, which config.json decides;
		// tied checkpoints may store the head a second time.
		if wanted[name] || strings.HasSuffix(name, "rotary_emb.inv_freq") || (m.Config.TieEmbeddings && name == "lm_head.weight") {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: surplus, the architecture %s has no such tensor", name, m.Config.Architecture))
	}
	if len(errs) > 0 {
		return fmt.Errorf("weights: %w", errors.Join(errs...))
	}
	for _, f := range b.tied {
		f()
	}
	return nil
}

// rope returns a table that covers the positions; it grows in powers of two.
func (m *Model) rope(pos []int32) *kernels.RoPETable {
	need := int(slices.Max(pos)) + 1
	m.ropeMu.Lock()
	defer m.ropeMu.Unlock()
	if m.table == nil || m.table.Positions() < need {
		n := 1024
		for n < need {
			n *= 2
		}
		m.table = kernels.NewRoPETable(m.Backend, m.Config.RoPEFreqs, n, m.Config.RoPEScale)
	}
	return m.table
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
		if err != nil {
			continue
		}
		t, err := kernels.FromBytes(view.DType, view.Data, view.Shape...)
		if err != nil {
			continue
		}
		for i := range t.Len() {
			if v := t.At(i); v-v != 0 {
				return fmt.Errorf("model %s: %s: element %d is %v, want a finite number: %w", m.Name, name, i, v, ErrNonFiniteWeights)
			}
		}
	}
	return fmt.Errorf("model %s: a pass was %w although all weights are finite", m.Name, ErrNonFinite)
}
