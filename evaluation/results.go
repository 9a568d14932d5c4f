package evaluation

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Results are the predictions of a run as they come, from any goroutine.
type Results struct {
	mu    sync.Mutex
	lines map[SampleKey][]*Prediction
	short bool // texts are stored elsewhere

	before    []*Prediction // whole, of the run that is continued, until Retain has looked at them
	extending map[SampleKey]extension

	measured bool // some sample is

	// What one prefill for all cells has taken, and how often it stood for several.
	prefill  time.Duration
	prefills int
	caches   int
}

// extension is a sample that a continued run has for some of its cells.
type extension struct {
	before  []*Prediction // whole
	cells   []Cell
	missing []int // places of the cells that are to be measured
}

// NewResults begins with the predictions of a run that is continued. Short are those without texts, which are
// stored elsewhere.
func NewResults(before []*Prediction, short bool) *Results {
	r := &Results{lines: make(map[SampleKey][]*Prediction), extending: make(map[SampleKey]extension), short: short, before: before}
	for _, p := range before {
		r.noteLines([]*Prediction{p}, true)
	}
	return r
}

// noteLines takes down lines of a sample, after those there are or in their place.
func (r *Results) noteLines(lines []*Prediction, after bool) {
	key := lines[0].Key()
	if !after {
		delete(r.lines, key)
	}
	for _, p := range lines {
		r.measured = r.measured || p.Measured()
		if r.short {
			short := *p
			short.Shorten()
			p = &short
		}
		r.lines[key] = append(r.lines[key], p)
	}
}

// todo tells which cells of a sample are to be measured: none, those at these places, or, where cells is
// nil, all.
func (r *Results) todo(model, task string, index int) (cells []int, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := SampleKey{model, task, index}
	if e, ok := r.extending[key]; ok {
		return e.missing, true
	}
	return nil, r.lines[key] == nil
}

// Retain looks at what there is of samples of work. Of one that lacks cells, those are measured. One
// whose lines are not of the cells, in their order, is forgotten and measured again: its ID comes back.
// Done is how many samples lack nothing.
func (r *Results) Retain(model string, work []Work, cells []Cell) (done int, again []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := make(map[SampleKey][]*Prediction)
	r.before = slices.DeleteFunc(r.before, func(p *Prediction) bool {
		if p.Model == model {
			found[p.Key()] = append(found[p.Key()], p)
		}
		return p.Model == model
	})
	if len(found) == 0 {
		return 0, nil
	}
	for j := range all(work) {
		key := SampleKey{model, j.work.Name, j.index}
		lines := found[key]
		if lines == nil {
			continue
		}
		switch missing, ok := lacking(lines, j.item.ID, cells); {
		case !ok:
			again = append(again, j.item.ID)
			delete(r.lines, key)
		case len(missing) > 0:
			r.extending[key] = extension{lines, cells, missing}
		default:
			done++
		}
	}
	return done, again
}

// lacking are the places of cells that a sample's lines are not of; ok is false where they are not
// what predictions makes of the other cells.
func lacking(lines []*Prediction, id string, cells []Cell) (missing []int, ok bool) {
	if len(lines) == 1 && lines[0].failed() {
		return nil, lines[0].Sample == id
	}
	at := 0
	for i, c := range cells {
		if at < len(lines) && lines[at].Sample == id && lines[at].cell() == c.named() {
			at++
		} else {
			missing = append(missing, i)
		}
	}
	return missing, at == len(lines)
}

// mergeLines makes all lines of a sample of those it had and those that it lacked.
func (e extension) mergeLines(found []*Prediction) (out []*Prediction) {
	if found[0].failed() { // which its other cells have not
		failed := *found[0]
		found = nil
		for _, i := range e.missing {
			p, named := failed, e.cells[i].named()
			p.Policy, p.Adapter, p.Budget = named.policy, named.adapter, named.budget
			found = append(found, &p)
		}
	}
	before := e.before
	for i := range e.cells {
		from := &before
		if slices.Contains(e.missing, i) {
			from = &found
		}
		out, *from = append(out, (*from)[0]), (*from)[1:]
	}
	return out
}

// merge makes all lines of a sample of those it had and those that it lacked.
func (r *Results) merge(lines []*Prediction) []*Prediction {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.extending[lines[0].Key()]; ok {
		lines = e.mergeLines(lines)
	}
	return lines
}

// addSample takes all lines of a sample that was measured in so many cells, with the time of its prefill; 0: by another process.
func (r *Results) addSample(lines []*Prediction, cells int, prefill time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.extending, lines[0].Key())
	r.noteLines(lines, false)
	if prefill > 0 {
		r.prefill += prefill
		r.prefills++
		r.caches += cells
	}
}

// Measured tells that some cell was measured on some sample.
func (r *Results) Measured() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.measured
}

// Predictions are all there are, in no order.
func (r *Results) Predictions() []*Prediction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(r.lines))...)
}

// Saved is what observing every prompt once has saved: prompts, the caches that were
// evicted of them, and the time that a prefill for each would have taken in addition.
func (r *Results) Saved() (prompts, caches int, saved time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.prefills == 0 {
		return 0, 0, 0
	}
	perPrompt := r.prefill / time.Duration(r.prefills)
	return r.prefills, r.caches, perPrompt * time.Duration(r.caches-r.prefills)
}

// predictions makes the lines of one sample.
func predictions(model, task, metric string, index int, id string, cells []Cell, s *Sample, o *outcome, err error) []*Prediction {
	base := Prediction{Task: task, Index: index, Sample: id, Model: model}
	if err != nil {
		base.Error = err.Error()
		return []*Prediction{&base}
	}
	base.Metric, base.Groups, base.PromptTokens = metric, s.Groups, o.promptTokens
	base.about(o.prompt, s.References)
	var out []*Prediction
	for i, c := range cells {
		p := base
		named := c.named()
		p.Policy, p.Adapter, p.Budget = named.policy, named.adapter, named.budget
		err := o.errs[i]
		if err == nil {
			err = o.measures[i].finite()
		}
		if err != nil {
			p.Error = err.Error()
			out = append(out, &p)
			continue
		}
		p.Measures = o.measures[i]
		for _, a := range o.answers[i] {
			p.Answers = append(p.Answers, a.Text)
			finish := "length"
			if a.Ended {
				finish = "stop"
			}
			p.Finish = append(p.Finish, finish)
		}
		out = append(out, &p)
	}
	return out
}
