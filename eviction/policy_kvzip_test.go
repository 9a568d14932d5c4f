package eviction_test

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func init() {
	// The prompt again, in chunks: the largest probability that any row in any head of the group gives an entry of the
	// chunk, among the sinks, the chunk and the rows themselves. The model has no words for the request.
	naivePolicies["kvzip"] = kvzipPlan(func(*naiveCase, int, int, int, []float64) float64 { return 1 })
}

// kvzipPlan weighs the probability that a row, which a layer reads as h, pays in a query head to entry j.
func kvzipPlan(weight func(c *naiveCase, l, head, j int, h []float64) float64) func(c *naiveCase) naivePlan {
	return func(c *naiveCase) naivePlan {
		chunk, sink := c.int("chunk"), c.int("sink")
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			scores[l] = make([][]float64, c.c.KVHeads)
			for g := range scores[l] {
				scores[l][g] = make([]float64, c.n())
			}
		}
		for from := 0; from < c.n(); from += chunk {
			to := min(from+chunk, c.n())
			tokens := c.tokens[from:to]
			if from > 0 {
				tokens = slices.Concat(c.tokens[max(0, from-8):from], tokens)
			}
			look := c.probe(c.embed(tokens), nil)
			for l := range scores {
				for h := range c.c.Heads {
					s := scores[l][h/c.c.Group()]
					for r, p := range look.attention[l][h] {
						among := 0.0
						for j, x := range p {
							if j < min(sink, from) || j >= from && j < to || j >= c.n() {
								among += x
							}
						}
						for j := from; j < to; j++ {
							score := p[j] / among * weight(c, l, h, j, look.inputs[l][r])
							if c.text("of") == "max" {
								s[j] = max(s[j], score)
							} else {
								s[j] += score / float64(len(tokens)*c.c.Group())
							}
						}
					}
				}
			}
		}
		for l := range scores {
			for g := range scores[l] {
				scores[l][g] = pooled(scores[l][g], c.int("kernel"))
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), sink: min(sink, c.budget)}
	}
}

// TestRepetition: what a chat template writes is not repeated, and its end of a message comes before the repetition.
func TestRepetition(t *testing.T) {
	p, err := eviction.New("kvzip", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := modeltest.Llama{Vocab: 100}.Open(t, "cpu")
	prompt := eviction.Prompt{
		Tokens: []int32{1, 2, 3, 10, 11, 12, 13}, Entries: 7, Budget: 2, Config: &m.Config,
		Turn: func() *model.UserTurn { return &model.UserTurn{Begins: []int32{1, 2, 3}, Ends: []int32{7, 8}} },
	}
	repeated := func(p eviction.Plan) model.RepeatedTokens { return p.Capture.PeakProbes[0].(model.RepeatedTokens) }
	r := repeated(p.Method.Plan(prompt))
	if want := []int32{7, 8, 10, 11, 12, 13}; !slices.Equal(r.TokenRows, want) || r.From != 3 || r.To != 7 || r.Sinks != 3 {
		t.Errorf("got %+v, want %v of the entries 3 to 7", r, want)
	}
	prompt.Tokens = []int32{9, 2, 3, 10, 11, 12, 13} // begins otherwise
	if r = repeated(p.Method.Plan(prompt)); len(r.TokenRows) != 9 || r.From != 0 {
		t.Errorf("another beginning: got %+v, want all of the prompt", r)
	}
}
