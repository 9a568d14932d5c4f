package evaluation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/model"
	"glimpse/model/runner"
)

// Cell is a policy at one budget. The full cache has one cell, without a budget.
type Cell struct {
	engine.Policy
	Budget eviction.Budget

	policy, budget int // places in the lists
}

// BudgetName is the budget as predictions have it.
func (c Cell) BudgetName() string {
	if c.Configured.Name == full {
		return ""
	}
	return c.Budget.String()
}

// named is the cell as predictions name it.
func (c Cell) named() predictionCell {
	return predictionCell{c.Title(), c.Adapter, c.BudgetName()}
}

// full and oracle are the policies that all others are measured against.
const (
	full   = "full"
	oracle = "oracle"
)

// CellsOf are all policies at all budgets, policy by policy.
func CellsOf(policies []engine.Policy, budgets []eviction.Budget) []Cell {
	var out []Cell
	for i, c := range policies {
		for j, b := range budgets {
			if c.Configured.Name == full {
				out = append(out, Cell{c, eviction.Budget{}, i, j})
				break
			}
			out = append(out, Cell{c, b, i, j})
		}
	}
	return out
}

// Bench is what a sample is measured with: one runtime, on one goroutine.
type Bench struct {
	Runtime   *eviction.Runtime
	Policies  []engine.Policy
	Budgets   []eviction.Budget
	Cells     []Cell
	Sampling  model.Sampling
	Agreement Agreements
	Batch     int // sessions that are decoded together, at least 1

	engine *engine.Engine // has no requests between two samples
}

// only is the bench of some of its cells, by their places: of the policies and the budgets that these have.
func (b *Bench) only(places []int) *Bench {
	some := *b
	some.Policies, some.Budgets, some.Cells = nil, nil, nil
	policies, budgets := make(map[int]int), make(map[int]int) // places there and here
	for _, i := range places {
		c := b.Cells[i]
		if _, ok := policies[c.policy]; !ok {
			policies[c.policy] = len(some.Policies)
			some.Policies = append(some.Policies, b.Policies[c.policy])
		}
		if _, ok := budgets[c.budget]; !ok {
			budgets[c.budget] = len(some.Budgets)
			some.Budgets = append(some.Budgets, b.Budgets[c.budget])
		}
		c.policy, c.budget = policies[c.policy], budgets[c.budget]
		some.Cells = append(some.Cells, c)
	}
	return &some
}

// Agreements is when the answers of evicted caches are compared with the full cache's, and
// its answer is run under eviction.
type Agreements string

// The choices of Agreements.
const (
	AgreementAuto Agreements = "auto" // for samples without a reference
	AgreementOn   Agreements = "on"
	AgreementOff  Agreements = "off"
)

// Names of measures that every task has.
const (
	MeasureExact   = "agreement_exact"  // 1 where the answer is that of the full cache, token by token
	Agreement      = "agreement_f1"     // token F1 of the answer against the full cache's
	MeasurePrefix  = "agreement_prefix" // tokens before the first that differs, as a share of the full cache's answer
	MeasureNLL     = "nll"              // mean over tokens of the full cache's answer, in nats, under eviction
	MeasureHitRate = "hit_rate"
	// MeasureAnswerRecall is of prompts whose answers are known to stand in them, see [eviction.AnswerRecall].
	MeasureAnswerRecall = "answer_recall"
	MeasureRecall       = "recall"
	MeasureTau          = "kendall_tau"
	MeasureKept         = "kept_bytes"
	MeasureFull         = "full_bytes"
	MeasureTraffic      = "traffic_bytes_per_step"
	MeasureAnswered     = "answer_tokens"
	MeasureReread       = "reread_tokens" // that left the cache since the chat template rewrote them
)

// Names of times, of tasks that measure them. Other tasks have them beside their samples.
const (
	MeasureTTFT      = "ttft_ms"
	MeasureOverhead  = "ttft_overhead"
	MeasureSpeed     = "decode_tokens_per_s"
	MeasurePeakCache = "peak_cache_bytes"
)

// outcome is what all cells did on one sample.
type outcome struct {
	promptTokens int
	prompt       string     // as the model reads it
	answers      [][]Output // [cell][turn]
	measures     []Measures // [cell]
	errs         []error    // [cell], nil where there is none
	prefill      time.Duration
	study        *eviction.Study // nil where nothing was answered
}

// answerSample runs a sample. Its prompt is observed in one pass for all cells, then caches are
// evicted, and decoded in batches.
func (b *Bench) answerSample(ctx context.Context, s *Sample) (*outcome, error) {
	out := &outcome{answers: make([][]Output, len(b.Cells)), measures: make([]Measures, len(b.Cells)), errs: make([]error, len(b.Cells))}
	if s.Measure != nil {
		measures, err := s.Measure(ctx, b)
		if err == nil && len(measures) != len(b.Cells) {
			err = fmt.Errorf("measures of %d cells, want %d", len(measures), len(b.Cells))
		}
		out.measures, out.promptTokens = measures, s.Tokens
		return out, err
	}
	ids, question, err := s.firstPrompt(ctx)
	if err != nil {
		return nil, err
	}
	out.promptTokens = len(ids)
	if m := b.Runtime.Runner.Model; m.Tokenizer != nil {
		out.prompt, _ = m.Tokenizer.Decode(ids, false) // ids of the user may be no text
	}
	study, err := b.Study(ctx, ids, &s.Turns[0], question)
	if err != nil {
		return nil, err
	}
	out.study, out.prefill = study, study.PrefillTime
	critical := study.Choices[len(b.Policies)*len(b.Budgets):][:len(b.Budgets)]
	ranked := b.rankings(study.Choices, critical)
	force := b.Agreement == AgreementOn || b.Agreement == AgreementAuto && s.Score == nil
	cells := make([]*conversation, len(b.Cells))
	for i, cell := range b.Cells {
		place := cell.policy*len(b.Budgets) + cell.budget
		cells[i] = b.newConversation(s, study, study.Choices[place], critical[cell.budget].Kept, ranked[place])
		out.measures[i] = cells[i].measures
		if force && s.Context == nil {
			cells[i].forced = study.Response
		}
	}
	if s.Context != nil && b.Agreement != AgreementOff {
		err = b.converseBehind(ctx, s, study, cells)
	} else {
		err = b.converse(ctx, cells)
	}
	if err != nil {
		return nil, err
	}
	for i, c := range cells {
		out.answers[i], out.errs[i] = c.answers, c.err
		if c.err != nil {
			continue
		}
		if force && s.Context == nil {
			agree(c.measures, c.answers[0].IDs, study.Response)
		}
		if s.Score == nil {
			continue
		}
		scores, err := s.Score(ctx, c.answers)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			out.errs[i] = fmt.Errorf("score: %w", err)
			continue
		}
		maps.Copy(c.measures, scores)
	}
	return out, nil
}

// firstPrompt is what is evicted: the first turn's prompt, or the context, behind which its question is asked.
func (s *Sample) firstPrompt(ctx context.Context) (ids, question []int32, err error) {
	if len(s.Turns) == 0 {
		return nil, nil, errors.New("sample without a turn")
	}
	if ids, _, err = s.Turns[0].Prompt(ctx, nil); err != nil {
		return nil, nil, err
	}
	if s.Context != nil {
		ids, question = s.Context, ids
	}
	if len(ids) == 0 {
		return nil, nil, errors.New("prompt: empty, want at least one token")
	}
	return ids, question, nil
}

// newConversation is a cell's part in a sample, with what is measured before it answers.
func (b *Bench) newConversation(s *Sample, study *eviction.Study, choice *eviction.Choice, critical [][][]int32, ranked Measures) *conversation {
	m := Measures{MeasureHitRate: eviction.HitRate(choice.Kept, critical), MeasureFull: float64(study.FullBytes)}
	if len(s.Evidence) > 0 {
		m[MeasureAnswerRecall] = eviction.AnswerRecall(choice.Kept, s.Evidence)
	}
	maps.Copy(m, ranked)
	return &conversation{bench: b, study: study, choice: choice, sample: s, measures: m}
}

// fullCell is the place of the full cache's cell; below 0 where it is not measured.
func (b *Bench) fullCell() int {
	return slices.IndexFunc(b.Cells, func(c Cell) bool { return c.Configured.Name == full })
}

// converseBehind lets all cells answer behind a context, and runs what the full cache has said to each question after that question
// under every cell. Where the full cache is none of them, it answers beside them.
func (b *Bench) converseBehind(ctx context.Context, s *Sample, study *eviction.Study, cells []*conversation) error {
	asked, at := cells, b.fullCell()
	if at < 0 {
		at, asked = len(cells), append(slices.Clip(cells), b.newConversation(s, study, study.Choices[len(study.Choices)-1], nil, nil))
	}
	if err := b.converse(ctx, asked); err != nil || asked[at].err != nil {
		return err
	}
	var some []*conversation
	for _, c := range cells {
		if c.err == nil {
			c.said = 0
			c.answersOfFull, some = asked[at].answers, append(some, c)
		}
	}
	return b.converse(ctx, some)
}

// rankings compares what the policies' choices rank by with the ranking of the oracle's; choices that
// do not rank have nothing. Most policies score alike at every budget: those are compared once.
func (b *Bench) rankings(choices, critical []*eviction.Choice) []Measures {
	out := make([]Measures, len(choices))
	for first := 0; first < len(b.Policies)*len(b.Budgets); first += len(b.Budgets) {
		own := choices[first : first+len(b.Budgets)]
		for i := 0; i < len(own); {
			ks := []int{own[i].Budget}
			for j := i + 1; j < len(own) && sameScores(own[j].Scores, own[i].Scores) && sameScores(critical[j].Scores, critical[i].Scores); j++ {
				ks = append(ks, own[j].Budget)
			}
			if recall, tau, ok := eviction.Agreement(own[i].Scores, critical[i].Scores, ks...); ok {
				for k, r := range recall {
					out[first+i+k] = Measures{MeasureRecall: r, MeasureTau: tau}
				}
			}
			i += len(ks)
		}
	}
	return out
}

// sameScores compares scores of layers and KV heads.
func sameScores(a, b [][][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y [][]float32) bool { return slices.EqualFunc(x, y, slices.Equal[[]float32]) })
}

// Study observes a prompt once for all policies at all budgets, and the oracle after
// them, and lets the full cache answer. Choices are policy by policy. Of a context question is what is asked first, which
// stands for the answer; where the full cache has no cell, its choices are the last ones.
func (b *Bench) Study(ctx context.Context, ids []int32, t *Turn, question []int32) (*eviction.Study, error) {
	critic, err := eviction.New(oracle, 0, nil, nil)
	if err != nil {
		return nil, err
	}
	policies := append(listing.Map(b.Policies, func(c engine.Policy) *eviction.Configured { return c.Configured }), critic)
	if question != nil && b.fullCell() < 0 {
		whole, err := eviction.New(full, 0, nil, nil)
		if err != nil {
			return nil, err
		}
		policies = append(policies, whole)
	}
	budgets := listing.Map(b.Budgets, func(budget eviction.Budget) int { return budget.Of(len(ids)) })
	prompt := eviction.Prompt{Tokens: ids, MaxNew: t.MaxNew, Context: question != nil, Response: question}
	opt := runner.GenerateOptions{MaxNew: t.MaxNew, Sampling: b.Sampling, OnToken: engine.StopAt(b.Runtime.Runner.Model, t.Stop, t.SkipLeading)}
	return b.Runtime.Study(ctx, policies, prompt, budgets, opt)
}

// agree measures how an answer agrees with the full cache's.
func agree(m Measures, got, want []int32) {
	same := 0
	for same < len(got) && same < len(want) && got[same] == want[same] {
		same++
	}
	m[MeasureExact], m[MeasurePrefix] = 0, 1
	if slices.Equal(got, want) {
		m[MeasureExact] = 1
	}
	if len(want) > 0 {
		m[MeasurePrefix] = float64(same) / float64(len(want))
	}
	m[Agreement] = eviction.TokenF1(got, want)
}

// finite is an error for measures that no JSON can hold.
func (m Measures) finite() error {
	for name, v := range m {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("measure %s: got %v, want a finite number", name, v)
		}
	}
	return nil
}
