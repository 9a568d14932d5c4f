package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("kvzip", Policy{
		Kind: "prefill", Doc: "largest attention that a repetition of the prompt pays to it: whatever may be asked of it later", Source: "KVzip (Kim et al. 2025, arXiv:2505.23416) §3, as kvpress (github.com/NVIDIA/kvpress) has it",
		Scorer: true, Options: kvzipOptions(), New: func(s Settings) (Method, error) { return newKVzip(s, false), nil },
	})
}

func kvzipOptions() []Option {
	return []Option{
		{Name: "of", Choices: choices("max", "mean"), Doc: "what becomes of the rows of the repetition, and with max of the query heads of a KV head"},
		{Name: "chunk", Default: 2048, Min: 16, Max: 1 << 20, Whole: true, Doc: "tokens that are repeated at once"},
		{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries that are kept, and that each chunk is seen beside"},
		kernelOption(1),
	}
}

func newKVzip(s Settings, weighed bool) kvzip {
	return kvzip{mean: s.OptionText("of") == "mean", weighed: weighed, chunk: s.Int("chunk"), sink: s.Int("sink"), kernel: s.Int("kernel")}
}

// kvzip asks the model to repeat the prompt and scores an entry by the largest probability that any row of the repetition,
// in any query head of the KV head, pays to it (KVzip, arXiv:2505.23416, eq. 2). Long prompts are repeated in chunks, and a
// chunk's probabilities are those among the sinks, itself and the repetition (§3.4). The authors rank all heads of all
// layers together: option head-budgets=global.
type kvzip struct {
	mean                bool
	weighed             bool // kvzip+
	chunk, sink, kernel int
}

// What asks for the repetition, as the authors' code does.
const (
	kvzipRequest = "\n\nRepeat the previous context exactly."
	kvzipOnward  = "\n\nRepeat the part of the previous context exactly, starting with"
	kvzipBefore  = 8 // last tokens of the chunk before, which follow kvzipOnward
)

func (m kvzip) Plan(p Prompt) Plan {
	plan := Plan{Sink: min(m.sink, p.Budget)}
	var probes []model.QueryRows
	for _, r := range m.repetitions(p) {
		probes = append(probes, r)
	}
	group := kernels.GroupMax
	if m.mean {
		group, plan.Capture = kernels.GroupMean, runner.Capture{Probes: probes}
	} else {
		plan.Capture = runner.Capture{PeakProbes: probes}
	}
	plan.Score = func(s *Scores, o *runner.Observation) {
		seen := slices.Concat(o.Probes, o.PeakProbes)
		for _, more := range seen[1:] { // of other chunks: each has columns of its own
			s.Ops.MaxScores(seen[0], more)
		}
		s.Observe(kernels.ScoreTerm{LogScore: seen[0], Group: group, Kernel: m.kernel})
	}
	return plan
}

// repetitions are the rows that repeat a prompt, but for what the chat template begins a message with.
func (m kvzip) repetitions(p Prompt) (all []model.RepeatedTokens) {
	begins, ends := p.aroundTurn()
	older := p.Entries - len(p.Tokens) // entries of the turns before, of the longest head
	for from := begins; from < len(p.Tokens); from += m.chunk {
		to := min(from+m.chunk, len(p.Tokens))
		r := model.RepeatedTokens{TokenRows: slices.Concat(p.requested(begins, from), ends, p.Tokens[from:to]), Sinks: min(m.sink, from), From: from, To: to, Weighed: m.weighed}
		if older > 0 { // which heads hold differently: all that a row attends to counts
			r.Sinks, r.From, r.To = 0, 0, p.Entries
		}
		all = append(all, r)
	}
	return all
}

// requested asks for the repetition of a prompt from a token on.
func (p Prompt) requested(begins, from int) []int32 {
	if from == begins {
		return p.encode(kvzipRequest)
	}
	return slices.Concat(p.encode(kvzipOnward), p.Tokens[max(begins, from-kvzipBefore):from])
}

// Repetition is at most so many tokens that ask for a repetition of the prompt from one of its places on, a share of what can be
// repeated, and begin with it. said is where that begins. Of a short prompt there are fewer; none where the request alone is too long.
func (p Prompt) Repetition(at float64, tokens int) (rows []int32, said int) {
	begins, ends := p.aroundTurn()
	longest := len(slices.Concat(p.encode(kvzipOnward), ends)) + kvzipBefore
	from := begins + int(at*float64(max(1, len(p.Tokens)-begins-(tokens-longest)+1)))
	rows = slices.Concat(p.requested(begins, from), ends)
	if said = len(rows); said >= tokens {
		return nil, 0
	}
	return append(rows, p.Tokens[from:min(len(p.Tokens), from+tokens-said)]...), said
}

// aroundTurn is how many of the first tokens the chat template has written, and what it ends a message with.
func (p Prompt) aroundTurn() (begins int, ends []int32) {
	if p.Turn == nil {
		return 0, nil
	}
	turn := p.Turn()
	if turn == nil || slices.ContainsFunc(turn.Ends, func(id int32) bool { return int(id) >= p.Config.Vocab }) {
		return 0, nil
	}
	if n := len(turn.Begins); n < len(p.Tokens) && slices.Equal(turn.Begins, p.Tokens[:n]) {
		begins = n
	}
	return begins, turn.Ends
}

// encode are the ids of a text; none where the model has no tokenizer that knows its words.
func (p Prompt) encode(text string) []int32 {
	if p.Tokenizer == nil {
		return nil
	}
	ids, err := p.Tokenizer.Encode(text, false)
	if err != nil || slices.ContainsFunc(ids, func(id int32) bool { return int(id) >= p.Config.Vocab }) {
		return nil
	}
	return ids
}
