package eviction

import "glimpse/model"

func init() {
	Policies.Add("dapq", Policy{
		Kind: "prefill", Doc: "decoding-aligned pseudo-queries: prompt tokens repeated at the positions of the response", Source: "dapq.txt eq. 4–6, §5.1",
		Options: []Option{
			{Name: "rows", Default: 32, Min: 1, Max: 4096, Whole: true, Doc: "pseudo-queries N"},
			{Name: "first", Default: 4, Min: 0, Max: 4096, Whole: true, Doc: "of them, tokens from the start of the prompt m; the others come from its end"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return dapq{rows: s.Int("rows"), first: s.Int("first")}, nil
		},
	})
}

type dapq struct{ rows, first int }

func (m dapq) Capture(p Prompt) model.Capture {
	n := len(p.Tokens)
	rows := min(m.rows, n)
	first := min(m.first, rows)
	tokens := append(model.TokenRows(nil), p.Tokens[:first]...)
	return model.Capture{Probes: []model.Prober{append(tokens, p.Tokens[n-(rows-first):]...)}}
}

// Score is the mean over the pseudo-rows; eq. 5's sum ranks the same.
func (m dapq) Score(dst [][]float32, _ Prompt, o *model.Observation) error {
	groupMean(dst, o.Probes[0])
	return nil
}
