package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/tokenizer"
)

// Prompt is what a method knows before the prompt runs. In a conversation it is
// the prompt of one turn, which runs on what the turns before it have left.
type Prompt struct {
	Tokens   []int32
	Entries  int     // most of any KV head once the prompt has run; in the first turn n, of every head
	Budget   int     // entries to keep per KV head and layer, B
	From     int     // position of the prompt's first token, above 0 in later turns
	MaxNew   int     // most tokens of the response; 0: unknown
	Response []int32 // the response to come, which only the oracle may know
	Draft    []int32 // what the draft model of a Speculator answers
	Drafted  int     // tokens that a Drafter's draft has run; 0 in its first look
	Config   *model.Config
	// Tokenizer is the model's; nil where it has none.
	Tokenizer *tokenizer.Tokenizer
}

// Method is a policy with its options resolved. It is immutable and safe for
// concurrent use.
type Method interface {
	// Capture says what to observe of the prompt's pass.
	Capture(p Prompt) model.Capture
	// Score gives every entry of a layer its importance, from what Capture asked for. The
	// values are numbers or −Inf; higher is kept.
	Score(s *Scores, p Prompt, o *model.Observation) error
}

// Protector is a Method that keeps the first sink and the last recent entries
// whatever their scores. Their sum is at most the budget.
type Protector interface {
	Protect(p Prompt) (sink, recent int)
}

// LayerAllocator is a Method whose layers have budgets of their own, which sum
// to at most layers · B.
type LayerAllocator interface {
	LayerBudgets(p Prompt) []int
}

// CrossLayerAllocator is a Method whose layer budgets depend on what was observed of all
// layers, so that no layer is evicted before the last one has run. Layers may get
// more than their share only where the method says so.
type CrossLayerAllocator interface {
	// LayerStatistics are the numbers that the budgets depend on, of a layer's observation.
	LayerStatistics(p Prompt, o *model.Observation) []float64
	// CrossLayerBudgets are the budgets, given the numbers of every layer.
	CrossLayerBudgets(p Prompt, statistics [][]float64) []int
}

// SpreadScorer is a Method that chooses by more than a number per KV head and entry.
type SpreadScorer interface {
	// SelectSpread selects at most budget entries of every head by the values and the spread
	// that Score gave.
	SelectSpread(s *Scores, budget int) *kernels.Selection
}

// Merger is a Method that merges what it evicts of the prompt into what it keeps.
type Merger interface {
	// Merge changes the kept pairs of a layer, which still holds all of them, and
	// returns the merge threshold per KV head, F64 [kvHeads], NaN where nothing was evicted.
	Merge(c *model.Cache, layer int, keep *kernels.Selection) (thresholds *kernels.Tensor)
}

// PoolKeeper is a Method that evicts nothing: what it selects is the pool that
// decoding is restricted to until the next turn.
type PoolKeeper interface{ KeepsAll() }

// HeadAllocator is a Method whose KV heads have budgets of their own. budget is
// that of the layer's heads on average; over all layers the heads' budgets sum to
// at most what uniform ones would.
type HeadAllocator interface {
	HeadBudgets(p Prompt, layer, budget int, s *Scores) []int
}

// Drafter is a Method that evicts twice: it decodes a draft of at most DraftTokens
// tokens on the evicted cache, up to its end token, and then selects from the full
// cache by the attention of the draft's queries, given to ScoreDraft like an
// observation of one probe, besides the windows that Capture asked for. What is
// protected, and the budgets of layers, may differ between the two.
type Drafter interface {
	DraftTokens() int
	ScoreDraft(s *Scores, p Prompt, o *model.Observation) error
}

// Responder is a Method that wants Prompt.Response.
type Responder interface{ NeedsResponse() }

// Speculator is a Method that wants Prompt.Draft: what another model answers to
// the prompt, at most DraftTokens tokens, its end token excluded.
type Speculator interface {
	// DraftModel is nil for the model itself.
	DraftModel() *model.Model
	DraftTokens() int
}

// Wrapper is a Method that scores by another one and selects in its own way.
type Wrapper interface{ Unwrap() Method }

// as finds the optional interface of a method, or of the one that scores for it.
// It is for what scoring needs (Responder, Drafter, Speculator, Fitter); how to
// select is each method's own affair.
func as[T any](m Method) (T, bool) {
	for {
		if t, ok := m.(T); ok {
			return t, true
		}
		w, ok := m.(Wrapper)
		if !ok {
			var none T
			return none, false
		}
		m = w.Unwrap()
	}
}

// DecodeEvicter is a Method that goes on evicting while decoding.
type DecodeEvicter interface {
	// StartDecode begins a response on what the prompt left.
	StartDecode(s *Session) DecodeState
}

// DecodeState is the eviction state of one response.
type DecodeState interface {
	Capture() model.Capture
	// Step sees a layer after one more token and selects what the cache keeps of it; nil
	// keeps everything. It may merge what goes into what stays. Scores that it decides by
	// are told to [Session.Ranked].
	Step(o *model.Observation) (*kernels.Selection, error)
}

// JointState is a DecodeState that may take all layers of a step at once, whose scores are
// [layers·heads, width], in the same memory: operations of a device on so few numbers take
// longer to start than to run.
type JointState interface {
	DecodeState
	// StepAll is Step of all layers: entries and what it selects are those of every KV head,
	// layer by layer.
	StepAll(logScores *kernels.Tensor, entries []int) *kernels.Selection
}

// Carrier is a DecodeState whose scores go on in the next turn.
type Carrier interface {
	// Carry adds what the turns before have left to the scores of a turn's prompt,
	// whose first entries are those that the state knows.
	Carry(p Prompt, o *model.Observation, s *Scores)
}

// SparseDecoder is a Method whose decoding steps attend to a few of the entries
// that the cache holds. It composes with any eviction of the prompt.
type SparseDecoder interface {
	// StartSparse begins a response on what the prompt left: on s.Pool where it is
	// not nil, else on all entries of the cache.
	StartSparse(s *Session) SparseState
}

// SparseState is what a SparseDecoder knows of the cache while one response is
// decoded.
type SparseState interface {
	// Select chooses the step's entries and returns the bytes that it read of keys
	// and values, or of what stands for them, to do so.
	Select(s *model.SparseStep) (estimation int64, err error)
	// Recordable tells that Select reads nothing of a device, so that its steps can be
	// recorded once and replayed.
	Recordable() bool
	// Estimated are, by step, the bytes that were read besides those that Select has told;
	// nil of none.
	Estimated() []int64
	// Bytes is the memory that it holds beside the cache.
	Bytes() int64
}

// groupOption lets users choose the grouping.
func groupOption(start kernels.Grouping) Option {
	return Option{Name: "group", Default: float64(start), Choices: choices("mean", "max", "sum"), Doc: "how the scores of the query heads of a KV head become one"}
}

func groupingOf(s Settings) kernels.Grouping { return kernels.Grouping(s.Int("group")) }

// windowOf is the observation window under a budget: at most half of it, so that
// something is left to select.
func windowOf(window, budget int) int { return max(1, min(window, budget/2)) }

// largest is the element-wise maximum of two observations of the same heads of a layer.
func largest(c *model.Cache, layer int, a, b *kernels.Tensor) *kernels.Tensor {
	out := copied(c, layer, a)
	c.On(layer).Selector().MaxScores(out, b)
	return out
}
