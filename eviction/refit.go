package eviction

import (
	"fmt"
	"slices"

	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// refitOption is every policy's that evicts the prompt alone.
var refitOption = Option{Name: "refit", Choices: choices("none", "values", "matching"), Doc: "what is kept is fitted to what the whole layer gives to queries that repeat the prompt: its values; or its values behind a bias of every entry that matches attention masses (Attention Matching, arXiv:2602.16284)"}

// The places of its values.
const (
	refitNone = iota
	refitValues
	refitMatching
)

// referenceRequests ask for something of a prompt. Each stands before another part of it, which the model might say: what is asked of a text,
// and what repeats it (the authors' self-study and repeat-prefill, arXiv:2602.16284).
var referenceRequests = []string{
	"\n\nRepeat the previous context exactly.",
	"\n\nWhat is the text above about? Summarize it.",
	"\n\nList the names, numbers and facts that are mentioned above.",
	"\n\nAnswer the question: what does the text say about this?",
}

const (
	mostReferences  = 96 // rows of a request, with the part of the prompt behind it
	leastReferences = 16
	referenceShare  = 8 // of a prompt's tokens a request has one in so many, so that all of them take half a prefill or less
)

// withRefit lets what a method keeps be refitted.
func withRefit(m Method, how int) Method {
	if how == refitNone {
		return m
	}
	return refitMethod{m, how == refitMatching}
}

// refitMethod is a method after which what is kept of every layer is refitted.
type refitMethod struct {
	Method
	biases bool
}

// Plan is the method's own, with rows whose queries are the references.
func (m refitMethod) Plan(p Prompt) Plan {
	plan := m.Method.Plan(p)
	plan.Refit = &Refit{Biases: m.biases}
	plan.Capture.References = p.references()
	return plan
}

// references are rows that ask something of the prompt and then say a part of it.
func (p Prompt) references() (out []model.QueryRows) {
	begins, ends := p.aroundTurn()
	n := len(p.Tokens) - begins
	for i, text := range referenceRequests {
		request := slices.Concat(p.encode(text), ends)
		said := min(n, max(leastReferences, min(mostReferences, n/referenceShare)-len(request)))
		from := begins + (n-said)*i/(len(referenceRequests)-1)
		out = append(out, model.TokenRows(slices.Concat(request, p.Tokens[from:from+said])))
	}
	return out
}

// checkRefit refuses the option of a policy that does more to a cache than to evict the prompt's entries.
func checkRefit(name string, m Method, how int) error {
	if how == refitNone {
		return nil
	}
	if plan := m.Plan(tinyPrompt()); plan.Decode != nil || plan.Sparse != nil || plan.KeepsAll || plan.Merge != nil {
		return fmt.Errorf("policy %s: option %s: it merges, or chooses while it decodes, want %s or a policy that evicts the prompt alone", name, refitOption.Name, refitOption.Choices()[refitNone])
	}
	return nil
}

// refits tells that what the policy keeps is refitted.
func (n *Configured) refits() bool { return n.Settings.Int(refitOption.Name) != refitNone }

// fitsRefit is an error that says why nothing can be refitted in caches of m; nil where it can, or nobody asks for it.
func (n *Configured) fitsRefit(m *model.Model) error {
	if !n.refits() {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("policy %s: option %s: %w", n.Name, refitOption.Name, err) }
	for l := range m.Config.Layers {
		if err := m.On(l).TakesBias(); err != nil {
			return fail(err)
		}
	}
	if t := m.CacheDType(); t.Numbers() != t {
		return fail(fmt.Errorf("got a cache in %s, want numbers that can be refitted, as float32 or bf16", m.CacheDTypeName()))
	}
	if n.evictsWindows() {
		return fail(fmt.Errorf("got %s=evict, want sliding windows to be left alone: references do not see what has left them", windowsOption.Name))
	}
	return nil
}

// Refit fits what is kept of a layer, of every KV head, to what the whole of it gives to reference queries (Attention Matching, Zweiger et
// al., arXiv:2602.16284): the queries of Capture.References.
type Refit struct {
	Biases bool // entries get biases, too
}

// takeReferences keeps the reference queries of a layer until it is refitted.
func (r *observer) takeReferences(o *runner.Observation) {
	if r.plan.Refit == nil || r.prompt.Config.Recurrent(o.Layer) {
		return
	}
	for _, q := range o.References {
		r.references[o.Layer] = append(r.references[o.Layer], q.Float32s()...)
	}
}

// refitLayer is what the kept entries of a layer's KV heads become. The cache still holds all entries when it is first asked. Nil where nothing is
// refitted.
func (r *observer) refitLayer(c *kvcache.Cache, layer int, keep *kernels.Selection) ([]headFit, error) {
	queries := r.references[layer]
	if queries == nil || r.fitted[layer] != nil {
		return r.fitted[layer], nil
	}
	past, config := c.View(layer), r.prompt.Config
	fits, errs := make([]headFit, len(past)), make([]error, len(past))
	parallel.For(len(past), func(h int) {
		ids := keep.Indices()[h]
		if len(ids) == 0 || len(ids) == past[h].Entries() {
			return
		}
		own := headQueries(queries, h, config.Heads, len(past), past[h].K.Width())
		fits[h], errs[h] = fitHead(past[h], own, ids, config.AttentionScale(), config.AttentionCap, r.plan.Refit.Biases)
	})
	for h, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("refit layer %d head %d: %w", layer, h, err)
		}
	}
	r.fitted[layer], r.references[layer] = fits, nil
	return fits, nil
}

// headQueries are the queries [rows, heads, dim] of the query heads that read KV head h, as [rows·group, dim].
func headQueries(queries []float32, h, heads, kvHeads, dim int) []float32 {
	group := heads / kvHeads * dim
	out := make([]float32, 0, len(queries)/kvHeads)
	for row := queries; len(row) > 0; row = row[heads*dim:] {
		out = append(out, row[h*group:(h+1)*group]...)
	}
	return out
}

// retain keeps what was selected of a layer and refits it, if the plan says so.
func (s *Session) retain(r *observer, layer int, keep *kernels.Selection) (err error) {
	var fits []headFit
	switch {
	case r.plan.Refit == nil || r.idle():
	case s.Model().Counts():
		fits = r.plan.Refit.counted(keep)
	default:
		fits, err = r.refitLayer(s.Cache, layer, keep)
	}
	if err == nil {
		err = s.Cache.RetainSelection(layer, keep)
	}
	for h, fit := range fits {
		if err == nil && (fit.values != nil || fit.biases != nil) {
			err = s.Cache.Refit(layer, h, fit.values, fit.biases)
		}
	}
	return err
}

// counted are the fits of a layer where memory is counted alone.
func (f *Refit) counted(keep *kernels.Selection) (fits []headFit) {
	for _, n := range keep.Lens {
		fit := headFit{}
		if f.Biases {
			fit.biases = make([]float32, n)
		}
		fits = append(fits, fit)
	}
	return fits
}
