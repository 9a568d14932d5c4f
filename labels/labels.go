// Package labels holds what adapters learn to predict of a prompt: which of its entries what comes after it attends to.
package labels

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/registry"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Label is a quantity that is known of a prompt once more has run after it, and that an adapter learns to tell without. A policy
// ranks by it: what that keeps is the best that can be learned.
type Label struct {
	Doc, Source string
	// Policy has the label as its score. It observes rows that run after the prompt, and nothing else.
	Policy string
	// Options are the policy's, as OPTION=VALUE.
	Options []string
	// Response tells that it is of the response, which any text without one lacks.
	Response bool
}

// Labels lists them by name.
var Labels = registry.Registry[Label]{Noun: "label"}

// Default is the name of the label that both papers of trained rows have.
const Default = "response"

func init() {
	Labels.Add(Default, Label{
		Doc: "mean attention that the response pays to the prompt", Source: "LookaheadKV (arXiv:2603.10899) §3; Judge Q (arXiv:2509.10798) eq. 3",
		Policy: "oracle", Response: true,
	})
	Labels.Add("context", Label{
		Doc: "largest attention that a repetition of the prompt pays to it, of any row and any query head of the KV head: whatever will be asked of it", Source: "KVzip (arXiv:2505.23416) eq. 2",
		Policy: "kvzip",
	})
	Labels.Add("context-mean", Label{
		Doc: "mean attention that a repetition of the prompt pays to it", Source: "KVzip (arXiv:2505.23416) §3, with means as LookaheadKV has them",
		Policy: "kvzip", Options: []string{"of=mean"},
	})
	Labels.Add("context+", Label{
		Doc: "context by the norm of what an entry adds to a row, over the norm of the row", Source: "KVzip+ of KVzap (arXiv:2601.07891)",
		Policy: "kvzip+",
	})
}

// Named is the label of a name, or what the policy of that name scores by.
func Named(name string) (Label, error) {
	l, err := Labels.Lookup(name)
	if _, other := eviction.Policies.Lookup(name); err != nil && other == nil {
		return Label{Policy: name}, nil
	}
	return l, err
}

// Configure makes the policy of a label, with more of its options, as OPTION=VALUE.
func (l Label) Configure(more ...string) (*eviction.Configured, error) {
	var set []string
	for _, o := range slices.Concat(l.Options, more) {
		set = append(set, l.Policy+"."+strings.TrimPrefix(o, l.Policy+"."))
	}
	overrides, err := eviction.ParseOverrides(set)
	if err != nil {
		return nil, err
	}
	return eviction.New(l.Policy, 0, overrides, nil)
}

// Observe is the label of a prompt whose pairs are all in the cache, which it does not change: per layer the logarithms
// [heads, entries], nil of recurrent layers and of those that read another layer's pairs. p has Tokens and, for a label that needs it, Response. policy
// is what Configure made.
func Observe(ctx context.Context, r *runner.Runner, cache *kvcache.Cache, policy *eviction.Configured, p eviction.Prompt) ([]*kernels.Tensor, error) {
	m := r.Model
	p.Entries, p.Budget = len(p.Tokens), max(1, len(p.Tokens)-1)
	p.Config, p.Tokenizer, p.Turn = &m.Config, m.Tokenizer, m.UserTurn
	capture := policy.Method.Plan(p).Capture
	out := make([]*kernels.Tensor, m.Config.Layers)
	probe := func(rows model.QueryRows, peak bool) error {
		return r.Probe(ctx, cache, rows, peak, func(o *runner.Observation) error {
			if m.Config.Recurrent(o.Layer) {
				return nil
			}
			b, scores := m.On(o.Layer), slices.Concat(o.Probes, o.PeakProbes)[0]
			if out[o.Layer] != nil { // of another part of the prompt, which has columns of its own
				b.Selector().MaxScores(out[o.Layer], scores)
				return nil
			}
			out[o.Layer] = b.Alloc(scores.DType, scores.Shape...)
			b.Copy(out[o.Layer], scores) // the next layer's may take its place
			return nil
		})
	}
	for _, rows := range capture.Probes {
		if err := probe(rows, false); err != nil {
			return nil, err
		}
	}
	for _, rows := range capture.PeakProbes {
		if err := probe(rows, true); err != nil {
			return nil, err
		}
	}
	if len(capture.Probes)+len(capture.PeakProbes) == 0 {
		return nil, fmt.Errorf("policy %s: it observes no rows after the prompt, which a label does", policy.Name)
	}
	return out, nil
}
