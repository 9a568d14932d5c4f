package training

import (
	"fmt"
	"slices"
)

// history is what a run remembers of its steps besides parameters and moments.
type history struct {
	NonFinite []int  `json:"non_finite"` // steps in a row that each adapter has skipped
	Best      []Best `json:"best"`       // per adapter
	Stale     int    `json:"stale"`      // validations since any adapter got better
	Stopped   bool   `json:"stopped"`
}

// Best is an adapter's best validation so far; Step 0 is none.
type Best struct {
	Step int     `json:"step"`
	Loss float64 `json:"loss"`
}

// countSkips notes the adapters that skipped a step. The error is that of one that has
// diverged.
func (h *history) countSkips(learners []*learner, r StepResult) error {
	var diverged error
	for i := range learners {
		if !r.Adapters[i].Skipped {
			h.NonFinite[i] = 0
			continue
		}
		h.NonFinite[i]++
		if h.NonFinite[i] >= maxNonFinite && diverged == nil {
			at := slices.IndexFunc(r.NonFinite, func(n NonFinite) bool { return n.Adapter == learners[i].Name })
			diverged = fmt.Errorf("%v, and none of the last %d steps was finite: a lower learning rate may help: %w", r.NonFinite[at], h.NonFinite[i], ErrNonFinite)
		}
	}
	return diverged
}

// judge notes a validation's losses and tells which adapters got better.
func (h *history) judge(step int, v *Validation, patience int) (better []int) {
	for i := range v.Adapters {
		q := &v.Adapters[i]
		if b := &h.Best[i]; b.Step == 0 || q.Loss < b.Loss {
			*b = Best{step, q.Loss}
			q.Best = true
			better = append(better, i)
		}
	}
	if len(better) > 0 {
		h.Stale = 0
	} else {
		h.Stale++
	}
	h.Stopped = patience > 0 && h.Stale >= patience
	return better
}
