package eviction

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// ContextFile is a context on disk: a safetensors file, sealed by a SHA-256 over all of it, with the tokens, the keys and values that
// were kept of them with their positions and biases, and what they depend on.
type ContextFile struct {
	ContextOrigin
	Tokens []int32
	file   *checkpoints.Safetensors
}

// ContextOrigin is what a context was made with.
type ContextOrigin struct {
	Model       string `json:"model"`  // for people
	ModelSHA256 string `json:"sha256"` // of its weights
	Device      string `json:"device"` // with its arithmetic, on which the bits depend
	CacheDType  string `json:"cache_dtype"`
	Policy      string `json:"policy"`        // with its options and adapter, for people
	PolicySum   string `json:"policy_sha256"` // of the policy with its options, adapter and budgets of heads
	Budget      string `json:"budget"`
	// Chat tells that the context ends within what the user says, in the model's chat template; else it is text as it is.
	Chat bool `json:"chat"`
}

// contextRecord is the JSON object of a file's metadata.
type contextRecord struct {
	ContextOrigin
	Next    int32 `json:"next"`           // position of the next token
	Rows    int   `json:"rows,omitempty"` // learned rows before it, whose pairs are among those that are kept
	Long    bool  `json:"long,omitempty"`
	Windows bool  `json:"windows,omitempty"` // layers with a sliding window were evicted, too
}

const (
	contextFormat  = "glimpse-context"
	contextVersion = "1"
	biasedVersion  = "2" // with biases, without which programs that know version 1 alone would read it
	contextTokens  = "tokens"
)

// Write writes the context as a file. Model, its hash, device and the type of the pairs are filled in. The same context always gives
// the same bytes.
func (c *Context) Write(ctx context.Context, m *model.Model, w io.Writer, o ContextOrigin) (err error) {
	o.Model, o.Device, o.CacheDType = m.Name, kernels.DeviceOf(m.Backend), m.CacheDTypeName()
	if o.ModelSHA256, err = m.SHA256(ctx); err != nil {
		return fmt.Errorf("context: %w", err)
	}
	tensors, err := c.cache.Tensors()
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	ids := make([]byte, 0, 4*len(c.Tokens))
	for _, id := range c.Tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
	}
	tensors = append(tensors, checkpoints.TensorView{Name: contextTokens, DType: kernels.I32, Shape: []int{len(c.Tokens)}, Data: ids})
	record, err := json.Marshal(contextRecord{o, c.cache.Next(), int(c.cache.Next()) - len(c.Tokens), c.cache.Long(), c.cache.HoldsWindows()})
	version := contextVersion
	if c.cache.Biased() {
		version = biasedVersion
	}
	if err == nil {
		err = checkpoints.WriteSealed(w, tensors, map[string]string{"format": contextFormat, "record": string(record), "version": version})
	}
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	return nil
}

// OpenContext opens a file that [Context.Write] has written, and verifies it. ErrCorrupt if any bit of it is not as it was written.
func OpenContext(path string) (*ContextFile, error) {
	file, err := checkpoints.OpenSafetensors(path)
	if err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	f := &ContextFile{file: file}
	if err := f.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("context %s: %w", path, err), file.Close())
	}
	return f, nil
}

func (f *ContextFile) read() error {
	meta := f.file.Metadata()
	if meta["format"] != contextFormat {
		return checkpoints.Corruptf("format: got %.100q, want %q, a file that \"evict compress\" has written", meta["format"], contextFormat)
	}
	if meta["version"] != contextVersion && meta["version"] != biasedVersion {
		return fmt.Errorf("version: got %.100q, want %q or %q: %w", meta["version"], contextVersion, biasedVersion, checkpoints.ErrVersion)
	}
	if err := f.file.VerifySeal(); err != nil {
		return err
	}
	record, err := f.record()
	if err != nil {
		return err
	}
	f.ContextOrigin = record.ContextOrigin
	ids, err := f.file.Raw(contextTokens)
	if err != nil {
		return err
	}
	for ; len(ids) >= 4; ids = ids[4:] {
		f.Tokens = append(f.Tokens, int32(binary.LittleEndian.Uint32(ids)))
	}
	if n := len(f.Tokens); n == 0 || int(record.Next) != n+record.Rows || record.Rows < 0 {
		return checkpoints.Corruptf("%d tokens and %d rows, want as many as the next position says, %d", n, record.Rows, record.Next)
	}
	return nil
}

func (f *ContextFile) record() (r contextRecord, err error) {
	if err := json.Unmarshal([]byte(f.file.Metadata()["record"]), &r); err != nil {
		return r, checkpoints.Corruptf("record: %v", err)
	}
	return r, nil
}

// Close unmaps the file. Contexts that were read of it stay.
func (f *ContextFile) Close() error { return f.file.Close() }

// Read is the context in the memory of a model: of the weights, and with the type of keys and values, that it was made with.
func (f *ContextFile) Read(ctx context.Context, m *model.Model) (*Context, error) {
	sum, err := m.SHA256(ctx)
	if err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	if sum != f.ModelSHA256 {
		return nil, fmt.Errorf("context: got one of %s with the weights %.12s…, want %.12s… as %s has", f.Model, f.ModelSHA256, sum, m.Name)
	}
	if own := m.CacheDTypeName(); own != f.CacheDType {
		return nil, fmt.Errorf("context: got keys and values in %s, want %s as the model's caches are: --cache-dtype %s takes it", f.CacheDType, own, f.CacheDType)
	}
	for _, id := range f.Tokens {
		if id < 0 || int(id) >= m.Config.Vocab {
			return nil, fmt.Errorf("context: got token %d, want 0 to %d", id, m.Config.Vocab-1)
		}
	}
	record, err := f.record()
	if err != nil {
		return nil, err
	}
	c := &Context{Tokens: slices.Clone(f.Tokens), cache: kvcache.New(m)}
	if record.Windows {
		c.cache.HoldWindows()
	}
	if err := c.Budget.Set(f.Budget); err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	if err := c.cache.Restore(m, f.file, record.Next, record.Long); err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	return c, nil
}
