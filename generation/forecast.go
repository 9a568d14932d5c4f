package generation

import (
	"context"
	"fmt"
	"runtime"

	"glimpse/kernels"
	"glimpse/model"
)

// Memory is what Pairs needs at the most demanding moment, in bytes: when all sequences
// have come to their last token and one makes room for the next prompt.
type Memory struct {
	Weights     int64
	Sequences   int
	CacheDType  kernels.DType
	Cache       int64 // keys and values of all of them
	Activations int64 // scratch memory of the passes
	Temporary   int64 // most of one operation
	Total       int64
}

// Forecast makes the allocations of Pairs on a model that only counts them (see
// [model.Model.Counted]), for prompts of so many tokens, of which there are so many; 0: any
// number. m may have shapes alone, or not have its weights yet.
func Forecast(ctx context.Context, m *model.Model, tokens, prompts int, opt Options) (k Memory, err error) {
	if err := opt.resolve(); err != nil {
		return k, err
	}
	counted, counter := m.Counted()
	k.Weights, k.CacheDType = counter.Live(), counted.CacheDType()
	groups, size := opt.groups(counted)
	prompt, most := make([]int32, tokens), opt.most(counted, tokens)
	if most <= 1 { // which the prompt's pass gives: its cache is not kept
		size = 1
	}
	if k.Sequences = groups * size; prompts > 0 {
		k.Sequences = min(k.Sequences, prompts)
	}
	var all []*group
	var passing int64 // what a group's passes take for a while, but for the operation that runs
	for left := k.Sequences; left > 0; left -= size {
		g := &group{m: counted, r: counted.NewRunner(), size: size}
		all = append(all, g)
		var caches []*model.Cache
		var samplers []*model.Sampler
		fill := func(c *model.Cache) error {
			logits, err := g.r.Forward(ctx, c, prompt, model.PrefillOptions{})
			if err != nil {
				return err
			}
			sampler, err := model.NewSampler(opt.Sampling, prompt)
			if err != nil {
				return err
			}
			samplers = append(samplers, sampler)
			_, err = sampler.Next(logits)
			return err
		}
		step := func() error {
			_, err := g.r.NextBatch(ctx, caches, make([]int32, len(caches)), size, samplers[:len(caches)])
			return err
		}
		for range min(left, size) {
			c := counted.NewCache()
			g.free, caches = append(g.free, c), append(caches, c)
			if err := fill(c); err != nil {
				return k, err
			}
			if most > 1 {
				c.Reserve(most)
			}
		}
		if most <= 1 {
			continue
		}
		if err := step(); err != nil {
			return k, err
		}
		last := caches[len(caches)-1]
		last.Clear()
		if err := fill(last); err != nil {
			return k, err
		}
		if err := step(); err != nil {
			return k, err
		}
		if len(all) == 1 {
			passing = max(0, counter.Peak()-counter.Live()-counter.Temporary())
		}
	}
	for _, g := range all {
		k.Activations += g.r.ScratchBytes()
		for _, c := range g.free {
			k.Cache += c.Bytes()
		}
	}
	k.Temporary, k.Total = counter.Temporary(), counter.Peak()+int64(len(all)-1)*passing
	runtime.KeepAlive(all)
	return k, nil
}

// CheckMemory is an error that wraps model.ErrMemory where what Pairs needs is more than
// there is: on an accelerator of its memory, else of what host tells, where weights are
// mapped and not counted. It is for [model.Options.BeforeWeights].
func CheckMemory(ctx context.Context, m *model.Model, host func() int64, tokens, prompts int, opt Options) error {
	tokens = min(tokens, m.Config.MaxPositions)
	available, ok := m.Available(host)
	if !ok || tokens < 1 || opt.resolve() != nil || m.RoughMemory(opt.Batch*(tokens+max(0, opt.most(m, tokens)))) <= available {
		return nil
	}
	k, err := Forecast(ctx, m, tokens, prompts, opt)
	if err != nil {
		return fmt.Errorf("forecast of memory: %w", err)
	}
	most := opt.most(m, tokens)
	f := model.Forecast{
		Device: m.DeviceName(), Need: k.Total, Available: available,
		Parts: []model.MemoryPart{
			{Name: "weights", Bytes: k.Weights}, {Name: fmt.Sprintf("keys and values of %d sequences of %d and %d tokens", k.Sequences, tokens, most), Bytes: k.Cache},
			{Name: "activations", Bytes: k.Activations}, {Name: "temporary", Bytes: k.Temporary},
		},
		Advice: []string{"lower --batch, --max-prompt (--tokens of synthetic tasks) or --max-new", "use a device with more memory"},
	}
	if k.CacheDType != kernels.BF16 {
		f.Advice = append([]string{"take --cache-dtype bf16"}, f.Advice...)
	}
	fixed := k.Weights
	if !m.Backend.OwnMemory() {
		f.Need -= k.Weights
		f.Parts[0].Bytes, fixed = 0, 0
	}
	f.FitPrompt(tokens, fixed)
	return f.Check()
}
