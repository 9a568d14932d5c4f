package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/internal/tables"
	"glimpse/model"
	"glimpse/model/runner"
)

// Options are the settings of one answer.
type Options struct {
	Budget   eviction.Budget
	MaxNew   int
	System   *string // system prompt of a conversation; nil: none
	Choice   model.SamplingChoice
	Sampling model.Sampling // what comes of it
	Compare  bool           // also time prefills with the policy and without eviction
	JSON     bool           // print an object in the place of each text
	// Context (may be nil) is what the prompt, or the conversation, begins with, ContextFile where it comes from.
	Context     *eviction.Context
	ContextFile *eviction.ContextFile
	Keep        engine.KeepRules // what of a conversation stays
}

// answerStatistics is what one answer cost.
type answerStatistics struct {
	turnStatistics
	Right       *bool              `json:"right,omitempty"` // of an example
	PlainMillis float64            `json:"plain_prefill_ms,omitempty"`
	PeakBytes   int64              `json:"peak_cache_bytes"` // of the prefill
	Context     *contextStatistics `json:"context,omitempty"`
}

// contextStatistics is what an answer stands behind.
type contextStatistics struct {
	Tokens int    `json:"tokens"`
	Policy string `json:"policy"`
	Budget string `json:"budget"`
}

// Answer runs a prompt with a policy's cache. The answer streams to out, what was kept and what
// it cost goes to info.
func Answer(ctx context.Context, out, info io.Writer, m *model.Model, policy engine.Policy, p *Prompt, o Options) error {
	shown := info
	info = tables.NewWrapper(info, tables.Columns(info))
	if p.Task != "" && !o.JSON {
		if err := ShowExample(info, p); err != nil {
			return err
		}
	}
	rt := eviction.NewRuntime(m)
	times, err := o.comparePrefills(ctx, info, shown, rt, policy, p)
	if err != nil {
		return err
	}
	s, err := rt.NewSession(policy.Configured, eviction.Pairs(o.Budget.Of(len(p.IDs))))
	if err != nil {
		return err
	}
	if err := p.CheckKeep(info, policy, o.Budget, s); err != nil {
		return err
	}
	known := 0
	if s.Context = o.Context; s.Context != nil {
		if known, err = s.Rewind(p.IDs); err != nil {
			return err
		}
	}
	e, err := engine.New(rt, 1)
	if err != nil {
		return err
	}
	e.More = func(int) bool { return false } // one unit between two steps
	show := out
	if o.JSON {
		show = nil
	}
	r := answered{policy: policy, prompt: p, known: known, times: times}
	r.reply, err = ask(ctx, e, engine.Request{Session: s, Prompt: p.IDs[known:], Generate: runner.GenerateOptions{MaxNew: o.MaxNew, Sampling: o.Sampling}, Progress: ShowPrefill(shown), Begun: func() {
		r.held, r.cached, r.kept = s.Bytes(), s.Cache.Bytes(), s.Cache.Pairs()
		r.holdings = holdingsNote(s, "%.0f of %d", len(p.IDs))
	}}, show)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if o.JSON {
		return r.writeJSON(out, o)
	}
	fmt.Fprintln(out)
	r.report(info, o)
	return nil
}

// CheckKeep makes what stays of the prompt the session's, and says how many tokens that are.
func (p *Prompt) CheckKeep(info io.Writer, policy engine.Policy, budget eviction.Budget, s *eviction.Session) error {
	n := len(p.IDs)
	stays := p.Keep.Tokens(n)
	if p.Keep.IsZero() || policy.Name == engine.Lossless {
		return nil
	}
	if err := p.rules.CheckKeep(policy, budget, n, p.Keep); err != nil {
		return err
	}
	pairs, grown := budget.Beside(n, stays)
	switch s.Keep = p.Keep; {
	case grown:
		fmt.Fprintf(info, "%d of %d tokens stay: the budget of %s has no room beside them, and grows to %d\n", stays, n, budget.Describe(n), pairs)
	case stays > 0:
		fmt.Fprintf(info, "%d of %d tokens stay\n", stays, n)
	}
	return nil
}

// comparePrefills times prefills with the policy and without eviction, where that is asked for.
func (o *Options) comparePrefills(ctx context.Context, info, shown io.Writer, rt *eviction.Runtime, policy engine.Policy, p *Prompt) (times comparison, err error) {
	if !o.Compare {
		return times, nil
	}
	full, err := eviction.New("full", 0, nil, nil)
	if err != nil {
		return times, err
	}
	fmt.Fprintf(info, "timing prefills with %s and without eviction: %d rounds, or as many as begin within %v\n", policy.Name, comparisonRounds, comparisonWithin)
	bar := progress.New(shown, "prefills", 0, progress.After(patience))
	defer bar.Done()
	return compareTimes(func(evicted bool) (time.Duration, error) {
		with, budget := full, len(p.IDs)
		if evicted {
			with, budget = policy.Configured, o.Budget.Of(len(p.IDs))
		}
		s, err := rt.Prefill(ctx, with, eviction.Prompt{Tokens: p.IDs, Budget: budget, MaxNew: o.MaxNew})
		if err != nil {
			return 0, err
		}
		return s.PrefillTime, nil
	}, func() { bar.Add(1) })
}

// answered is an answer with what was found of it when its prompt had run.
type answered struct {
	reply
	policy       engine.Policy
	prompt       *Prompt
	known        int // tokens of the context
	times        comparison
	held, cached int64 // bytes
	kept         int   // pairs of all heads
	holdings     string
}

// right tells of an example whether the answer is.
func (r *answered) right() bool { return r.Ended() && slices.Equal(r.Tokens(), r.prompt.Answer) }

// writeJSON writes the answer and what it cost as one object.
func (r *answered) writeJSON(out io.Writer, o Options) error {
	s := r.Request.Session
	x := answerStatistics{turnStatistics: r.statistics(AnswerSchema, r.policy), PeakBytes: s.PeakBytes}
	x.BudgetShare, x.Pairs, x.HeldBytes, x.FullBytes = o.Budget.Share(), float64(r.kept)/float64(s.Cache.Heads()), r.held, s.FullBytes
	if n := len(r.times.plain); n > 0 { // medians
		x.TTFTMillis, x.PlainMillis = ms(r.times.evicted[n/2]), ms(r.times.plain[n/2])
	}
	if r.prompt.Task != "" {
		right := r.right()
		x.Right = &right
	}
	if f := o.ContextFile; f != nil {
		x.Context = &contextStatistics{r.known, f.Policy, f.Budget}
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(x)
}

// report says what was kept, and what the answer cost.
func (r *answered) report(info io.Writer, o Options) {
	s := r.Request.Session
	switch r.Reason() {
	case engine.MaxNew:
		fmt.Fprintf(info, "cut short at %d tokens, the most of an answer: --max-new\n", len(r.Tokens()))
	case engine.Context:
		fmt.Fprintf(info, "cut short: the context of %d tokens is full\n", s.Model().Config.MaxPositions)
	}
	if r.prompt.Task != "" {
		verdict := "wrong"
		if r.right() {
			verdict = "right"
		}
		fmt.Fprintf(info, "the answer is %s\n", verdict)
	}
	by := "policy " + r.policy.Name
	if f := o.ContextFile; f != nil {
		by = fmt.Sprintf("behind a context of %d tokens, policy %s, budget %s", r.known, f.Policy, f.Budget)
	} else if r.policy.Name != "full" {
		by += ", budget " + o.Budget.Describe(len(r.prompt.IDs))
	}
	fmt.Fprintf(info, "%s: kept %s, %.1f of %.1f KiB (%.1f%%)%s\n",
		by, r.holdings, kib(r.cached), kib(s.FullBytes), 100*float64(r.cached)/float64(s.FullBytes), besideNote(r.held-r.cached))
	if o.Compare {
		fmt.Fprintln(info, r.times)
	}
	fmt.Fprintf(info, "time to first token %.1f ms; peak of the cache during prefill %.1f KiB\n", ms(s.PrefillTime), kib(s.PeakBytes))
	fmt.Fprintf(info, "%d tokens at %.0f tokens/s%s\n", len(r.Tokens()), r.speed, trafficNote(s.Traffic))
}

// holdingsNote says how many entries a session holds of how many tokens, in the given form. Layers with a sliding window, to
// which no budget applies, are told by themselves.
func holdingsNote(s *eviction.Session, form string, tokens int) string {
	decided, windowed := s.Holdings()
	if decided.Layers == 0 {
		decided, windowed = windowed, eviction.Holding{}
	}
	note := fmt.Sprintf(form+" KV entries per KV head on average", decided.Entries, tokens)
	if windowed.Layers > 0 {
		note += fmt.Sprintf(" in %s (%d with a sliding window keep their own, %.0f)", listing.Count(decided.Layers, "layer"), windowed.Layers, windowed.Entries)
	}
	return note
}

// besideNote says what a sparse policy keeps beside the cache, if there is any.
func besideNote(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("; %.1f KiB beside the cache to choose by", kib(bytes))
}

// trafficNote says what a decoding step has read, if there was any.
func trafficNote(t eviction.Traffic) string {
	if t.Steps == 0 {
		return ""
	}
	note := fmt.Sprintf("; attention reads %.1f KiB per step", t.PerStep()/1024)
	if t.Estimation > 0 {
		note += fmt.Sprintf(", %.1f of them to choose", float64(t.Estimation)/float64(t.Steps)/1024)
	}
	return note
}

func kib(b int64) float64        { return float64(b) / 1024 }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ShowExample prints the ends of an example's prompt, and its answer.
func ShowExample(w io.Writer, p *Prompt) error {
	note, err := exampleNote(p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, note)
	return err
}

func exampleNote(p *Prompt) (string, error) {
	const shown = 24
	var texts []string
	for _, ids := range [][]int32{p.IDs[:min(len(p.IDs), shown)], p.IDs[max(0, len(p.IDs)-shown):], p.Answer} {
		text, err := datasets.WordsText(ids)
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return fmt.Sprintf("prompt of task %s, %d tokens: %s … %s\nright answer: %s", p.Task, len(p.IDs), texts[0], texts[1], texts[2]), nil
}
