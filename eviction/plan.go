package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
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
	Context  bool    // it is a context, which is evicted before anything is asked of it
	Keep     Keep    // what stays, by positions in the cache
	Response []int32 // the response to come, of a Plan that needs it
	Draft    []int32 // what the draft model of a Plan answers
	Drafted  int     // tokens that the draft on the evicted cache has run; 0 in the first look
	Config   *model.Config
	// Windows: layers with a sliding window are evicted, too, and hold the whole prompt until then.
	Windows bool
	// Progress (may be nil) is told of each pass over the prompt. A draft or response of the model's own is such a pass, too.
	Progress runner.Progress
	// Tokenizer is the model's; nil where it has none.
	Tokenizer *tokenizer.Tokenizer
	// beside are entries of a head that the prompt's whole budget has for what stays, beside Budget.
	beside int
	// Turn (may be nil) tells how the model's chat template frames a user's message.
	Turn func() *model.UserTurn
}

// fits tells that the budget has room for everything, or there is nothing to decide about.
func (p Prompt) fits() bool { return p.Entries <= p.Budget || p.Config != nil && len(p.layers()) == 0 }

// holds is how many entries a head keeps in the mean, those that have to stay among them.
func (p Prompt) holds() int { return p.Budget + p.beside }

// decides tells whether a policy decides about a layer: whether that holds the whole prompt. Layers that read the pairs of another
// hold none.
func (p Prompt) decides(layer int) bool {
	return p.Config.HoldsKV(layer) && (p.Windows || p.Config.Window(layer) == 0)
}

// layers are those that a policy decides about, by whose number budgets are shared out.
func (p Prompt) layers() (out []int) {
	for l := range p.Config.Layers {
		if p.decides(l) {
			out = append(out, l)
		}
	}
	return out
}

// rank is a layer's place among them.
func (p Prompt) rank(layer int) int {
	n, _ := slices.BinarySearch(p.layers(), layer)
	return n
}

// spread gives the layers that a policy decides about their budgets; the others have no end.
func (p Prompt) spread(budgets []int) []int {
	out := slices.Repeat([]int{math.MaxInt32}, p.Config.Layers)
	for i, l := range p.layers() {
		out[l] = budgets[i]
	}
	return out
}

// spared are the layers that are not observed: they read no cache which is decided about; nil where there are none.
func (p Prompt) spared() []bool {
	if len(p.layers()) == p.Config.Layers {
		return nil
	}
	out := make([]bool, p.Config.Layers)
	for l := range out {
		out[l] = !p.decides(p.Config.KVLayer(l))
	}
	return out
}

// Method is a policy with its options resolved. It is immutable and safe for
// concurrent use.
type Method interface {
	// Plan says what the policy wants of a prompt. It is asked again as more is known of the
	// prompt: its response, its draft, and after a draft on the evicted cache (Drafted) for the
	// second look.
	Plan(p Prompt) Plan
}

// Plan is what a policy wants of one prompt. Whoever runs, counts or measures a policy reads
// it; what is nil or zero is not wanted.
type Plan struct {
	// Capture says what to observe of the prompt's pass.
	Capture runner.Capture
	// Score gives every entry of a layer its importance, from what Capture asked for. The
	// values are numbers or −Inf; higher is kept. Nil: all are equal.
	Score func(s *Scores, o *runner.Observation)
	// Pooling is that of scores which are sums, before entries are ranked by them.
	Pooling Pooling

	// Sink and Recent are the first and the last entries that are kept whatever their scores.
	// Their sum is at most the budget.
	Sink, Recent int
	// Floor, above 0, is the least score that is kept even where the budget has room, of entries beside Sink and Recent.
	Floor float32
	// Budget is how many entries a KV head keeps in the mean, in the place of the prompt's B; 0: B.
	Budget int
	// Layers are budgets of the layers, which sum to at most layers · B; nil: Budget for each.
	Layers []int
	// CrossLayer, where it is set, makes them of the observations of all layers.
	CrossLayer *CrossLayer
	// Heads are the budgets of a layer's KV heads; budget is their mean. Over all
	// layers they sum to at most what uniform ones would. Nil: budget for each.
	Heads func(layer, budget int, s *Scores) []int
	// Global: the heads of all layers have one ranking, in the place of Layers and Heads. No layer is evicted before the
	// last one has run.
	Global bool
	// Select, where it is set, chooses at most budget entries of every head by more than a
	// number per KV head and entry, in the place of Sink, Recent and Heads.
	Select func(s *Scores, budget int) *kernels.Selection
	// Merge changes the kept pairs of a layer, which still holds all of them, by the pairs that are
	// evicted, and returns the merge threshold per KV head, F64 [kvHeads], NaN where nothing
	// was evicted.
	Merge func(c *kvcache.Cache, layer int, keep *kernels.Selection) (thresholds *kernels.Tensor)
	// Refit, where it is set, fits what stays of a layer to what the whole of it gives; nil leaves it as it is.
	Refit *Refit
	// Stay, where it is set, are rows that run on the whole cache before anything of it goes. The pairs of the last of them, Staying in
	// number, stay beside what is kept; the budget counts them. They have the positions after the prompt, and what follows stands
	// behind them. A prompt that fits its budget has none.
	Stay    model.QueryRows
	Staying int
	// KeepsAll: nothing is evicted. What is selected is the pool that decoding is restricted
	// to until the next turn.
	KeepsAll bool

	// NeedsResponse: it wants Prompt.Response.
	NeedsResponse bool
	// Draft, where it is set, wants Prompt.Draft.
	Draft *Draft
	// Drafted, above 0, evicts twice: at most so many tokens are decoded on the evicted cache,
	// up to the end token. The plan of the second look (Prompt.Drafted) then scores the full
	// cache by the attention of their queries, given like an observation of one probe, besides
	// the windows that Capture asked for.
	Drafted int

	// Decode begins a response, on what the prompt left, in which eviction goes on.
	Decode func(s *Session) *Decoding
	// HoldsHeads: Decode holds every head at as many entries as the prompt has left it ([Session.headLimits]), so that heads may
	// share budgets in any way.
	HoldsHeads bool
	// Sparse begins a response whose steps attend to a few of the entries that the cache
	// holds: of s.Pool where it is not nil, else of all. It composes with any eviction of the
	// prompt.
	Sparse func(s *Session) SparseState
}

// CrossLayer are budgets of layers that depend on what was observed of all of them, so that no
// layer is evicted before the last one has run. Layers may get more than their share only
// where the method says so.
type CrossLayer struct {
	// Statistics are the numbers that the budgets depend on, of a layer's observation.
	Statistics func(o *runner.Observation) []float64
	// Budgets are the budgets of all layers, given the numbers of each.
	Budgets func(statistics [][]float64) []int
}

// Draft is what another model answers to the prompt, its end token excluded.
type Draft struct {
	Model  *model.Model // nil: the model itself
	Tokens int          // at most
}

// Decoding is the eviction of one response, token by token.
type Decoding struct {
	// Capture says what to observe of a step.
	Capture runner.Capture
	// Step sees a layer after one more token and selects what the cache keeps of it; nil
	// keeps everything. It may merge what goes into what stays. Scores that it decides by
	// are told to [Session.Ranked].
	Step func(o *runner.Observation) (*kernels.Selection, error)
	// StepAll, where it is set, is Step of all layers at once, whose scores are
	// [layers·heads, width], in the same memory: operations of a device on so few numbers take
	// longer to start than to run. entries and what it selects are of every KV head,
	// layer by layer.
	StepAll func(logScores *kernels.Tensor, entries []int) *kernels.Selection
	// Carry, where it is set, adds what the turns before have left to the scores of a turn's
	// prompt, whose first entries are those that the response knows.
	Carry func(p Prompt, o *runner.Observation, s *Scores)
}

// SparseState is what a sparse policy knows of the cache while one response is
// decoded.
type SparseState interface {
	// Select chooses the step's entries and returns the bytes that it read of keys
	// and values, or of their stand-ins, to do so.
	Select(s *runner.SparseStep) (estimation int64, err error)
	// Recordable tells that Select reads nothing of a device, so that its steps can be
	// recorded once and replayed.
	Recordable() bool
	// Estimated are, by step, the bytes that were read besides those that Select has told;
	// nil of none.
	Estimated() []int64
	// Bytes is the memory that it holds beside the cache.
	Bytes() int64
}

// waits tells that the full cache of all layers stays until the last one is observed,
// whatever their budgets are.
func (p *Plan) waits() bool {
	return p.Drafted > 0 || p.CrossLayer != nil || p.Global || p.KeepsAll || p.Stay != nil
}

// keepsAll tells the same of a prompt where every layer holds so many entries.
func (p *Plan) keepsAll(entries, budget int) bool {
	if p.waits() || p.Floor > 0 {
		return p.waits()
	}
	if entries <= budget {
		return true
	}
	if p.Layers == nil {
		return entries <= p.headBudget(budget)
	}
	return slices.Min(p.Layers) >= entries
}

// reusable is the most of a prompt's first tokens whose pairs may have been computed before: what is observed
// comes after them.
func (p *Plan) reusable(tokens int) int {
	if c := &p.Capture; c.AllRows || c.Queries || len(c.Gates) > 0 {
		return 0
	}
	observed := kvcache.MinRows
	for _, window := range slices.Concat(p.Capture.Windows, p.Capture.PeakWindows) {
		observed = max(observed, window)
	}
	return tokens - observed
}

// layerBudget is a layer's budget where the prompt's is B.
func (p *Plan) layerBudget(layer, budget int) int {
	if p.Layers == nil {
		return p.headBudget(budget)
	}
	return p.Layers[layer]
}

// headBudget is what a KV head keeps in the mean where the prompt's budget is B.
func (p *Plan) headBudget(budget int) int {
	if p.Budget > 0 {
		return p.Budget
	}
	return budget
}

// selectLayer selects a layer's entries of at most budget.
func (p *Plan) selectLayer(s *Scores, layer, budget int) *kernels.Selection {
	rest := s.hidden()
	if p.Select == nil {
		return s.Select(s.withStaying(p.aboveFloor(p.headBudgets(rest, layer, budget), rest)), p.Sink, p.Recent)
	}
	return s.stay.with(p.Select(rest, s.restBudget(budget)))
}

// headBudgets are the budgets of a layer's heads, whose mean is budget.
func (p *Plan) headBudgets(s *Scores, layer, budget int) []int {
	if p.Heads != nil {
		return p.Heads(layer, budget, s)
	}
	return s.Uniform(budget)
}

// aboveFloor are budgets with room for no entry whose score is below the floor. Where numbers are counted alone, no score is known
// to be.
func (p *Plan) aboveFloor(budgets []int, s *Scores) []int {
	if p.Floor == 0 {
		return budgets
	}
	rows := s.Rows()
	if rows == nil {
		return budgets
	}
	out := make([]int, len(budgets))
	for h, row := range rows {
		sink := min(p.Sink, len(row))
		recent := max(sink, len(row)-p.Recent)
		out[h] = sink + len(row) - recent
		for _, x := range row[sink:recent] {
			if x >= p.Floor {
				out[h]++
			}
		}
		out[h] = min(out[h], budgets[h])
	}
	return out
}

// groupOption lets users choose the grouping.
func groupOption(start kernels.Grouping) Option {
	return Option{Name: "group", Default: float64(start), Choices: choices("mean", "max", "sum"), Doc: "how the scores of the query heads of a KV head become one"}
}

func groupingOf(s Settings) kernels.Grouping { return kernels.Grouping(s.Int("group")) }

// windowOf is the observation window under a budget: at most half of it, so that
// something is left to select.
func windowOf(window, budget int) int { return max(1, min(window, budget/2)) }
