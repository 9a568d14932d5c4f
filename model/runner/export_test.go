package runner

import (
	"context"
	"fmt"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// HiddenStates runs tokens in chunks and returns the residual stream before the
// first layer and after every layer but the last, [tokens, hidden], and after the
// last one that of the last token alone, with the final norm applied.
func (r *Runner) HiddenStates(tokens []int32, chunk int) ([][]float32, error) {
	r.release()
	defer r.release()
	m := r.Model
	cache := kvcache.New(m)
	cache.Begin(len(tokens))
	p := r.newPrefillPass(context.Background(), cache, PrefillOptions{Chunk: chunk}, tokens)
	states := [][]float32{p.x.Float32s()}
	for l := range m.Config.Layers {
		if err := p.layer(l, p.chunks); err != nil {
			return nil, err
		}
		if l < m.Config.Layers-1 {
			states = append(states, p.x.Float32s())
		}
	}
	return append(states, p.last.Float32s()), nil
}

// DeviceLogits are logits in the memory of b.
func DeviceLogits(t *kernels.Tensor, b kernels.Backend) *Logits {
	return &Logits{device: t, model: &model.Model{Backend: b}}
}

// RecordedOperations is the number of launches and copies of the recorded step that r took last.
func (r *Runner) RecordedOperations() int {
	return r.recorded.graphs[0].graph.(interface{ Operations() int }).Operations()
}

// Appended is opt with probes that run with the last rows on any backend.
func Appended(opt PrefillOptions) PrefillOptions {
	opt.appendProbes = true
	return opt
}

// StepSparsely is Step with an attention that choose restricts.
func (r *Runner) StepSparsely(cache *kvcache.Cache, token int32, choose SparseAttention) ([]float32, error) {
	y, err := r.hostStep(context.Background(), []*batchStep{{cache: cache, token: token, opt: &GenerateOptions{Sparse: choose}}}, 1)
	if err != nil {
		return nil, err
	}
	return y[0], nil
}

// Scores are the logits of the next token after a prompt and what was said since, as
// the processors leave them.
func Scores(s model.Sampling, prompt, said []int32, logits []float32) []float32 {
	x, _ := after(s, prompt, said).applyPenalties(&s.Processors, logits) // an error is a constraint's
	return x
}

// Probabilities [vocab] are those that the next token is drawn with.
func Probabilities(s model.Sampling, prompt, said []int32, logits []float32) []float64 {
	ids, p, sum := newSampler(s, nil).drawSettings().Candidates(Scores(s, prompt, said, logits))
	out := make([]float64, len(logits))
	for i, id := range ids {
		out[id] = p[i] / sum
	}
	return out
}

func after(s model.Sampling, prompt, said []int32) *past {
	p := newPast(prompt)
	for _, id := range said {
		p.addToken(id)
	}
	return p
}

// NextBatch is StepBatch that draws every sequence's next token, on a device where the
// logits lie.
func (r *Runner) NextBatch(ctx context.Context, caches []*kvcache.Cache, tokens []int32, rows int, samplers []*Sampler) (next []int32, err error) {
	if len(samplers) != len(caches) {
		return nil, fmt.Errorf("decode: %d samplers for %d sequences", len(samplers), len(caches))
	}
	defer kernels.CatchDevice(&err)
	defer r.release()
	steps, err := stepsOf(caches, tokens)
	if err != nil {
		return nil, err
	}
	y, err := r.stepBatch(ctx, steps, rows)
	if err != nil {
		return nil, err
	}
	own := make([]*sampler, len(samplers))
	for i, s := range samplers {
		own[i] = s.s
	}
	for i, row := range drawRows(r.Model, y, own) {
		if row.err != nil {
			return nil, row.err
		}
		id, err := row.drawToken(own[i])
		if err != nil {
			return nil, err
		}
		next = append(next, id)
	}
	return next, nil
}

// Sampler draws the tokens of one sequence.
type Sampler struct{ s *sampler }

// NewSampler validates the settings. Processors look at the prompt, which is that of the
// sequence.
func NewSampler(s model.Sampling, prompt []int32) (*Sampler, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{newSampler(s, prompt)}, nil
}

// Next draws a token. Equal logits: the lower id comes first.
func (s *Sampler) Next(logits *Logits) (int32, error) { return logits.drawToken(s.s) }

// Key and Value are the step's own pair of a KV head.
func (s *SparseStep) Key(head int) []float32   { return lastRow(s.attend.Past[head].K).Float32s() }
func (s *SparseStep) Value(head int) []float64 { return lastRow(s.attend.Past[head].V).Float64s() }

func lastRow(t *kernels.Tensor) *kernels.Tensor { return t.Rows(t.Dim0()-1, t.Dim0()) }

// Reserve makes room for n more entries in all layers of a cache.
func Reserve(c *kvcache.Cache, n int) {
	for l := range c.Layers() {
		c.ReserveLayer(l, n, 1)
	}
}
