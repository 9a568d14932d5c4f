package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
)

// SelectedOnHost is what the host's rules keep of the scores that a plan was made by; nil
// where nothing was scored.
func SelectedOnHost(c *Choice) [][][]int32 {
	r := c.observer
	if c.Scores == nil {
		return nil
	}
	var out [][][]int32
	for l, scores := range r.scores {
		plan, budget := r.plan, r.plan.layerBudget(l, r.prompt.Budget)
		if r.plan.CrossLayer != nil {
			budget = r.plan.CrossLayer.Budgets(r.statistics)[l]
			prompt := r.prompt
			prompt.Budget = budget
			plan = r.policy.Method.Plan(prompt)
		}
		host := &Scores{Entries: scores.Entries, Ops: scores.Ops.HostSelector(), Values: scores.Values.OnHost()}
		if scores.Spread != nil {
			host.Spread = scores.Spread.OnHost()
		}
		out = append(out, plan.selectLayer(host, l, budget).Indices())
	}
	return out
}

// SparseChoices are what a device and the host have chosen for the same queries and keys.
type SparseChoices struct {
	*SparsePages
	host       *SparsePages
	Compare    func(layer int, device, host [][]int32)
	Estimation int64 // bytes that the host has read to choose
}

// Recordable: the host reads queries and keys.
func (*SparseChoices) Recordable() bool { return false }

// Select lets both choose and goes on with the device's choice.
func (c *SparseChoices) Select(s *runner.SparseStep) (int64, error) {
	other := *s
	n, err := c.host.Select(&other)
	if err != nil {
		return 0, err
	}
	c.Estimation += n
	if n, err = c.SparsePages.Select(s); err != nil {
		return 0, err
	}
	c.Compare(s.Layer, chosenBy(s), chosenBy(&other))
	return n, nil
}

// chosenBy is what a step attends to; nil is everything.
func chosenBy(s *runner.SparseStep) [][]int32 {
	if s.Selection == nil {
		return nil
	}
	return s.Selection.Indices()
}

// Estimated counts what the host has read, too.
func (c *SparseChoices) Estimated() []int64 {
	for _, n := range c.host.Estimated() {
		c.Estimation += n
	}
	return c.SparsePages.Estimated()
}

// HostSelectsToo lets the host choose beside the device of a session that has run a
// prompt; nil where no device chooses.
func HostSelectsToo(s *Session) *SparseChoices {
	device, ok := s.sparse.(*SparsePages)
	if !ok || !device.ownMemory {
		return nil
	}
	decided, size := s.Prompt.layers(), 1
	dense := slices.IndexFunc(decided, func(l int) bool { return device.layers[l] != nil })
	if dense < 0 {
		dense = len(decided)
	} else {
		size = device.layers[decided[dense]][0].size
	}
	host := newSparsePagesBy(func(layer int) kernels.Selector { return s.Cache.On(layer).HostSelector() }, s, device.estimator, dense, size, device.bounds)
	if device.sums != nil {
		host.keepMeans(s.Cache)
	}
	c := &SparseChoices{SparsePages: device, host: host}
	s.sparse = c
	return c
}

// SparseLog takes down what a device chooses, also in steps that are recorded.
type SparseLog struct {
	*SparsePages
	layers []*kernels.Selection // copies of the last step's; nil: all entries
}

// LogChoices takes down what the device of a session chooses; nil where no device does.
func LogChoices(s *Session) *SparseLog {
	device, ok := s.sparse.(*SparsePages)
	if !ok || !device.ownMemory {
		return nil
	}
	l := &SparseLog{device, make([]*kernels.Selection, s.Cache.Layers())}
	s.sparse = l
	return l
}

// Select copies the choice into memory of its own, which the next layer leaves alone.
func (l *SparseLog) Select(s *runner.SparseStep) (int64, error) {
	n, err := l.SparsePages.Select(s)
	l.layers[s.Layer] = nil
	if err != nil || s.Selection == nil {
		return n, err
	}
	all, base := make([][]int32, s.Cache.KVHeads()), make([]int, s.Cache.KVHeads())
	for h := range all {
		all[h], base[h] = upTo(0, s.Cache.Entries(s.Layer, h)), s.Cache.Entries(s.Layer, h)
	}
	l.layers[s.Layer] = s.Backend().Selector().Compose(kernels.HostSelection(all), s.Selection, base)
	return n, err
}

// Choices are those of the last step by layer and head; nil where a layer attended to
// everything.
func (l *SparseLog) Choices() (out [][][]int32) {
	for _, s := range l.layers {
		if s == nil {
			out = append(out, nil)
		} else {
			out = append(out, s.Indices())
		}
	}
	return out
}

// FirstStage is what rocketkv's first stage keeps of a prompt.
func FirstStage(p Prompt) int {
	_, first := splitPrompt(p, adaptiveSplit)
	return first
}

// SparseSteps shows every choice of a session's host, and the bytes read for it.
func SparseSteps(s *Session, show func(step *runner.SparseStep, estimation int64)) {
	s.sparse = shownSteps{s.sparse, show, new([]int64)}
}

type shownSteps struct {
	SparseState
	show func(*runner.SparseStep, int64)
	told *[]int64 // what Estimated has told before
}

// Recordable: steps that are recorded are not shown.
func (shownSteps) Recordable() bool { return false }

func (x shownSteps) Select(s *runner.SparseStep) (int64, error) {
	n, err := x.SparseState.Select(s)
	shown := *s
	if shown.Entries == nil {
		shown.Entries = chosenBy(s)
	}
	estimation := n
	for _, later := range x.Estimated() {
		estimation += later
	}
	for _, earlier := range *x.told {
		estimation -= earlier
	}
	*x.told = x.Estimated()
	x.show(&shown, estimation)
	return n, err
}

// SpoilScores makes a score of KV head 1 that a session's steps go on from in a layer another
// one; false of policies that keep none.
func SpoilScores(s *Session, layer int, value float64) bool {
	if s.decode == nil || s.decode.Carry == nil {
		return false
	}
	step := s.decode.Step
	s.decode.Step = func(o *runner.Observation) (*kernels.Selection, error) {
		if o.Layer == layer {
			scores := o.Windows[0] // [heads, width], the last half of the heads are of KV head 1
			for h := scores.Dim0() / 2; h < scores.Dim0(); h++ {
				scores.Set(h*scores.Width()+1, value)
			}
		}
		return step(o)
	}
	return true
}

// Logits are those of the prompt's last token.
func (s *Session) Logits() []float32 {
	logits, err := s.logits.Float32s()
	if err != nil { // Turn has checked them
		panic(err)
	}
	return logits
}

// HeadBudgetsOf are the budgets of a prompt's heads. Each head keeps at least so many entries.
func HeadBudgetsOf(b *HeadBudgets, p Prompt, least int) [][]int { return b.of(p, least) }

// MassRidge, ValueRidge and FitHead are of a refit.
const (
	MassRidge  = massRidge
	ValueRidge = valueRidge
)

func FitHead(kv kernels.KV, queries []float32, ids []int32, scale, softCap float64, biases bool) (values, fitted []float32, err error) {
	fit, err := fitHead(kv, queries, ids, scale, softCap, biases)
	return fit.values, fit.biases, err
}
