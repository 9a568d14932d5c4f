package eviction

import (
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
	"glimpse/model/tokenizer"
)

func init() {
	Policies.Add("dapq", Policy{
		Kind: "prefill", Doc: "decoding-aligned pseudo-queries: prompt tokens repeated at the positions of the response", Source: "DapQ (Tian et al. 2026, arXiv:2603.11564) eq. 4–6, §5.1",
		Scorer: true,
		Options: []Option{
			{Name: "rows", Default: 32, Min: 1, Max: 4096, Whole: true, Doc: "pseudo-queries N"},
			{Name: "first", Default: 4, Min: 0, Max: 4096, Whole: true, Doc: "of them, tokens from the start of the prompt m; the others come from its end"},
			kernelOption(1),
			groupOption(kernels.GroupMean),
			{Name: "content", Choices: choices("ends", "random", "span", "fixed", "vocabulary"), Doc: "what the pseudo-queries say (DapQ, arXiv:2603.11564, §6.1, figure 6a): the prompt's ends, random tokens of it, a random span of it, \"Sorry, I don't know.\" over and over, or random tokens of the vocabulary (figure 2a)"},
			{Name: "offset", Default: 0, Min: -maxOffset, Max: maxOffset, Whole: true, Doc: "how many positions after those of the response they stand, before them where it is negative (§3.2, figure 2b)"},
		},
		New: func(s Settings) (Method, error) {
			return dapq{rows: s.Int("rows"), first: s.Int("first"), kernel: s.Int("kernel"), group: groupingOf(s), content: s.OptionText("content"), offset: s.Int("offset"), seed: s.Seed}, nil
		},
	})
}

// dapq appends pseudo-queries at positions n … n+N−1 (DapQ, arXiv:2603.11564, eq. 4), scores entry j
// by Σ_i softmax(q_i·K/√d)_j over them (eq. 5) and keeps the B best (eq. 6); no window
// is kept, and by default nothing is pooled. What the pseudo-queries say hardly matters, which
// content lets users see.
type dapq struct {
	rows, first, kernel int
	group               kernels.Grouping
	content             string
	offset              int
	seed                uint64
}

// maxOffset bounds the option.
const maxOffset = 1 << 24

// Plan scores by the mean over the pseudo-rows; eq. 5's sum ranks the same.
func (m dapq) Plan(p Prompt) Plan {
	tokens := m.pseudo(p)
	rows := model.QueryRows(tokens)
	if m.offset != 0 {
		rows = model.ShiftedTokens{TokenRows: tokens, By: m.offset}
	}
	return Plan{
		Capture: runner.Capture{Probes: []model.QueryRows{rows}},
		Score: func(s *Scores, o *runner.Observation) {
			s.Observe(kernels.ScoreTerm{LogScore: o.Probes[0], Group: m.group, Kernel: m.kernel})
		},
	}
}

// pseudo is the pseudo-queries' tokens, as many as rows or the prompt has.
func (m dapq) pseudo(p Prompt) model.TokenRows {
	n := len(p.Tokens)
	rows := min(m.rows, n)
	rng := rand.New(rand.NewPCG(m.seed, uint64(n)))
	tokens := make(model.TokenRows, 0, rows)
	switch m.content {
	case "random": // RS_C of figure 6
		for range rows {
			tokens = append(tokens, p.Tokens[rng.IntN(n)])
		}
	case "span": // RC_C
		from := rng.IntN(n - rows + 1)
		tokens = append(tokens, p.Tokens[from:from+rows]...)
	case "fixed": // Fix_C
		tokens = append(tokens, Nonsense(p.Config, p.Tokenizer, rows)...)
	case "vocabulary": // DC of figure 2a
		for range rows {
			tokens = append(tokens, int32(rng.IntN(p.Config.Vocab)))
		}
	default: // Fm_Ln
		first := min(m.first, rows)
		tokens = append(append(tokens, p.Tokens[:first]...), p.Tokens[n-(rows-first):]...)
	}
	return tokens
}

// Nonsense are the first n tokens of "Sorry, I don't know. Sorry, I don't know. …" (DapQ,
// arXiv:2603.11564, table 1, figure 6a) as the model's tokenizer writes it. A model without
// one, or whose tokenizer does not know the words, gets tokens spread over its vocabulary,
// which repeat themselves as soon.
func Nonsense(c *model.Config, t *tokenizer.Tokenizer, n int) []int32 {
	if t != nil {
		// No text of n sentences has fewer than n tokens.
		ids, err := t.Encode(strings.TrimSpace(strings.Repeat("Sorry, I don't know. ", n)), false)
		if err == nil && len(ids) >= n && !slices.ContainsFunc(ids[:n], func(id int32) bool { return int(id) >= c.Vocab }) {
			return ids[:n]
		}
	}
	const length = 7
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(c.Vocab * (i%length + 1) / (length + 1))
	}
	return out
}
