package eviction

import (
	"math"

	"glimpse/model"
)

func init() {
	Policies.Add("full", Policy{
		Kind: "none", Doc: "keeps everything", Source: "baseline",
		New: func(Settings, model.Adapter) (Method, error) { return full{}, nil },
	})
}

type full struct{}

func (full) Capture(Prompt) model.Capture { return model.Capture{} }

func (full) Score(*Scores, Prompt, *model.Observation) error { return nil }

// LayerBudgets is no limit at all.
func (full) LayerBudgets(p Prompt) []int {
	out := make([]int, p.Config.Layers)
	for l := range out {
		out[l] = math.MaxInt32
	}
	return out
}
