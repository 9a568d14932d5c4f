package eviction

import (
	"math"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("kvzap", Policy{
		Kind: "prefill", Doc: "what trained gates make of the row that an entry is made of, and the last entries; with decode=1 while decoding, too", Source: "KVzap (Jeblick & Jégou 2026, arXiv:2601.07891) §3; gates of Fast KVzip (Kim et al. 2026, arXiv:2601.17668)",
		Adapter: "kvzap", Scorer: true,
		Options: []Option{
			{Name: "window", Default: 128, Min: 0, Max: 1 << 20, Whole: true, Doc: "last entries that are kept, half of the budget at most (KVzap: 128)"},
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries that are kept (Fast KVzip: 4; KVzap: 0)"},
			{Name: "decode", Default: 0, Min: 0, Max: 1, Whole: true, Doc: "1 scores the tokens of the response, too, and every head goes on with as many entries as the prompt has left it"},
			{Name: "threshold", Default: noThreshold, Min: noThreshold, Max: 100, Doc: "least logarithm of a score that is kept, within the budget; the authors of KVzap take some from -7 to 0; -100: none"},
			kernelOption(1),
		},
		New: func(s Settings) (Method, error) {
			gate, err := adapterOf[model.GateAdapter](s)
			m := kvzap{gate: gate, window: s.Int("window"), sink: s.Int("sink"), kernel: s.Int("kernel"), decodes: s.Int("decode") == 1}
			if t := s.Float("threshold"); t > noThreshold {
				m.floor = float32(math.Exp(t))
			}
			return m, err
		},
	})
}

// noThreshold is below the logarithm of any score.
const noThreshold = -100

// kvzap scores an entry once, when it is made, by a gate that has learned the logarithm of a label's score (KVzap,
// arXiv:2601.07891). It ranks by the score itself. With a threshold it keeps no lower score but of the window and the sinks (KVzap,
// §3.3), however many that are; the budget is how many may stay.
// In later turns the entries of those before rank first, in their order: what they were made of is gone. With decode=1 their
// scores are remembered.
type kvzap struct {
	gate                 model.GateAdapter
	window, sink, kernel int
	decodes              bool
	floor                float32 // 0: none
}

func (m kvzap) Plan(p Prompt) Plan {
	sink := min(m.sink, p.Budget)
	recent := min(m.window, p.Budget-sink)
	if m.floor == 0 || !p.fits() { // something is left to select
		recent = min(recent, p.Budget/2)
	}
	plan := Plan{Capture: runner.Capture{Gates: []model.Gate{m.gate}}, Sink: sink, Recent: recent, Floor: m.floor}
	if !m.decodes {
		plan.Score = func(s *Scores, o *runner.Observation) {
			s.Observe(kernels.ScoreTerm{LogScore: o.Gates[0], Kernel: m.kernel, Tail: recent})
			s.rankFirst(len(p.Tokens))
		}
		return plan
	}
	plan.Pooling = Pooling{m.kernel, recent}
	plan.Score = func(s *Scores, o *runner.Observation) { s.Observe(kernels.ScoreTerm{LogScore: o.Gates[0]}) }
	plan.HoldsHeads = true
	plan.Decode = func(s *Session) *Decoding { return goOnScoring(s, &plan, p.Budget) }
	return plan
}

// rankFirst gives the entries that were there before the last of so many tokens the highest score that there is.
func (s *Scores) rankFirst(tokens int) {
	for h, n := range s.Entries {
		if older := n - tokens; older > 0 {
			from := h * s.Values.Width()
			s.Ops.Fill(s.Values.Reshape(s.Values.Len()).Rows(from, from+older), math.MaxFloat32)
		}
	}
}

// goOnScoring scores the response's tokens, too. A head keeps as many entries as it had after the prompt: for each new one it evicts
// the lowest score outside the window, and with a floor every lower one that leaves the window.
func goOnScoring(s *Session, plan *Plan, budget int) *Decoding {
	known := NewAccumulated(s)
	return &Decoding{Capture: plan.Capture, Carry: known.carry, Step: func(o *runner.Observation) (*kernels.Selection, error) {
		scores := plan.Pooling.Of(known.AddScores(o, o.Gates[0]))
		budgets := plan.aboveFloor(s.headLimits(o.Layer, budget), scores)
		for h, n := range scores.Entries {
			if n > budgets[h] {
				keep := scores.Select(budgets, plan.Sink, plan.Recent)
				known.Retain(o.Layer, keep)
				return keep, nil
			}
		}
		return nil, nil
	}}
}
