package eviction

import (
	"math/rand/v2"

	"glimpse/kernels"
	"glimpse/model"
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
			{Name: "content", Choices: choices("ends", "random", "span", "fixed"), Doc: "what the pseudo-queries say (DapQ, arXiv:2603.11564, §6.1): the prompt's ends, random tokens of it, a random span of it, or always the same nonsense"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return dapq{rows: s.Int("rows"), first: s.Int("first"), kernel: s.Int("kernel"), group: groupingOf(s), content: s.Text("content"), seed: s.Seed}, nil
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
	seed                uint64
}

func (m dapq) Capture(p Prompt) model.Capture {
	return model.Capture{Probes: []model.QueryRows{m.pseudo(p)}}
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
	case "fixed": // Fix_C; no words, which would need a tokenizer that knows them
		for i := range rows {
			tokens = append(tokens, int32(p.Config.Vocab*(i%fixedLength+1)/(fixedLength+1)))
		}
	default: // Fm_Ln
		first := min(m.first, rows)
		tokens = append(append(tokens, p.Tokens[:first]...), p.Tokens[n-(rows-first):]...)
	}
	return tokens
}

// fixedLength is after how many tokens the fixed nonsense repeats itself.
const fixedLength = 7

// Score is the mean over the pseudo-rows; eq. 5's sum ranks the same.
func (m dapq) Score(s *Scores, _ Prompt, o *model.Observation) error {
	s.Observe(kernels.ScoreTerm{LogScore: o.Probes[0], Group: m.group, Kernel: m.kernel})
	return nil
}
