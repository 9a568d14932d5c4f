package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// pass is a prompt that runs under the plans of its observers. A session is one of them, whose layers are evicted as they are
// selected; a study has any number, and its cache stays whole.
type pass struct {
	runtime   *Runtime
	cache     *kvcache.Cache
	before    []int32 // tokens of the turns before
	prompt    Prompt  // without a budget
	observers []*observer
	session   *Session // nil: of a study
	// respond (nil: the plans know the response, or none does) gives the response to the whole cache when the prompt has run.
	respond func() ([]int32, error)

	drafts  []draftOf
	started time.Time
	logits  *runner.Logits
}

// draftOf is what a draft model has answered.
type draftOf struct {
	Draft
	tokens []int32
	bytes  int64 // of its cache
}

// run takes the prompt through the model. Nothing of its cache is dropped before what a plan waits for is there: the observations
// of all layers, a draft on what is kept, or the response.
func (p *pass) run(ctx context.Context) error {
	for _, r := range p.observers {
		if err := p.speculate(ctx, r); err != nil {
			return err
		}
	}
	prefix, err := p.session.prefix(ctx, p)
	if err != nil {
		return err
	}
	if prefix != nil {
		defer prefix.Close()
	}
	during, after := p.observers, []*observer(nil)
	if p.respond != nil {
		during, after = nil, nil
		for _, r := range p.observers {
			if r.plan.NeedsResponse {
				after = append(after, r)
			} else {
				during = append(during, r)
			}
		}
	}
	whole := p.session == nil || p.observers[0].plan.keepsAll(p.observers[0].prompt.Entries, p.observers[0].prompt.Budget)
	opt := runner.PrefillOptions{Capture: mergeCaptures(during), Prefix: prefix, Pipelined: whole, Progress: p.prompt.Progress, Observe: func(o *runner.Observation) error {
		for _, r := range during {
			if keep := r.observeLayer(o); p.session != nil {
				if err := p.session.observed(r, o, keep, whole); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	tokens := p.prompt.Tokens
	if p.session != nil {
		opt.LogProbs, tokens = p.session.LogProbs, tokens[p.session.Reused:]
	}
	p.started = time.Now()
	if p.logits, err = p.runtime.Runner.Forward(ctx, p.cache, tokens, opt); err != nil {
		return err
	}
	if p.respond != nil {
		if err := p.observeResponse(ctx, after); err != nil {
			return err
		}
	}
	for _, r := range p.observers {
		if err := r.finishSelection(ctx); err != nil {
			return err
		}
		if r.plan.Drafted > 0 && !r.idle() {
			if err := r.draft(ctx, p.runtime.Runner, p.cache, p.logits); err != nil {
				return err
			}
		}
	}
	return nil
}

// speculate lets the draft model answer that a plan wants, once for all of them.
func (p *pass) speculate(ctx context.Context, r *observer) error {
	want := r.plan.Draft
	if want == nil || r.fits() {
		return nil
	}
	i := slices.IndexFunc(p.drafts, func(d draftOf) bool { return d.Draft == *want })
	if i < 0 {
		tokens, bytes, err := p.runtime.speculate(ctx, want, slices.Concat(p.before, p.prompt.Tokens), p.prompt.Progress)
		if err != nil {
			return err
		}
		i, p.drafts = len(p.drafts), append(p.drafts, draftOf{*want, tokens, bytes})
	}
	r.know(func(own *Prompt) { own.Draft = p.drafts[i].tokens })
	return nil
}

// observeResponse lets observers that had to wait for the response observe it on the whole cache.
func (p *pass) observeResponse(ctx context.Context, observers []*observer) error {
	response, err := p.respond()
	if err != nil || len(observers) == 0 {
		return err
	}
	for _, r := range observers {
		r.know(func(own *Prompt) { own.Response = response })
	}
	capture := mergeCaptures(observers)
	if len(capture.Windows)+len(capture.PeakWindows)+len(capture.PeakProbes)+len(capture.Gates) > 0 || capture.AllRows || len(capture.Probes) > 1 {
		return fmt.Errorf("study: policies that know the response may only observe it")
	}
	observe := func(o *runner.Observation) error {
		for _, r := range observers {
			r.observeLayer(o)
		}
		return nil
	}
	for _, probe := range capture.Probes {
		if err := p.runtime.Runner.Probe(ctx, p.cache, probe, false, observe); err != nil {
			return err
		}
	}
	for l := range p.cache.Layers() { // every prompt fits its budget
		if len(capture.Probes) == 0 && p.prompt.Config.KVLayer(l) == l {
			observe(&runner.Observation{Layer: l, Cache: p.cache})
		}
	}
	return nil
}

// finite is an error if the logits or a score of the pass are not finite. It waits for the device.
func (p *pass) finite(b kernels.Backend) error {
	if err := p.logits.CheckFinite(); err != nil {
		return err
	}
	for _, r := range p.observers {
		if err := r.finite(b); err != nil {
			return err
		}
	}
	return nil
}
