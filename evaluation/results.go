package evaluation

import (
	"io"
	"slices"
	"sync"
	"time"
)

// Results are the predictions of a run as they come, from any goroutine.
type Results struct {
	mu     sync.Mutex
	all    []*Prediction
	done   map[sampleKey]bool
	failed int
	sink   io.Writer // nil: memory only

	// What one prefill for all cells has taken, and how often it stood for several.
	prefill  time.Duration
	prefills int
	caches   int
}

// NewResults begins with the predictions of a run that is continued. What is added also
// goes to sink, one write for each sample; it may be nil.
func NewResults(before []*Prediction, sink io.Writer) *Results {
	r := &Results{done: make(map[sampleKey]bool), sink: sink}
	for _, p := range before {
		r.note(p)
	}
	return r
}

// note takes down a prediction. Answers that are on disk are not held in memory.
func (r *Results) note(p *Prediction) {
	r.done[p.key()] = true
	if p.Error != "" {
		r.failed++
	}
	if r.sink != nil {
		short := *p
		short.Answers, short.Finish = nil, nil
		p = &short
	}
	r.all = append(r.all, p)
}

// Done tells that a sample needs no work.
func (r *Results) Done(model, task string, index int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[sampleKey{model, task, index}]
}

// Retain forgets what is there of samples of work whose lines are not those of the cells, in
// their order: a line more or less, another one, or one in another place. They are measured again.
// The IDs of these samples come back, and keep tells which predictions are not of them.
func (r *Results) Retain(model string, work []Work, cells []Cell) (again []string, keep func(*Prediction) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := make(map[sampleKey][]*Prediction)
	for _, p := range r.all {
		if p.Model == model {
			lines[p.key()] = append(lines[p.key()], p)
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	wrong := make(map[sampleKey]bool)
	for j := range all(work) {
		key := sampleKey{model, j.work.Name, j.index}
		if found := lines[key]; found != nil && !expected(found, j.item.ID, cells) {
			wrong[key], again = true, append(again, j.item.ID)
		}
	}
	keep = func(p *Prediction) bool { return !wrong[p.key()] }
	r.all = slices.DeleteFunc(r.all, func(p *Prediction) bool {
		if keep(p) {
			return false
		}
		delete(r.done, p.key())
		if p.Error != "" {
			r.failed--
		}
		return true
	})
	return again, keep
}

// expected tells whether lines are what predictions makes of a sample.
func expected(lines []*Prediction, id string, cells []Cell) bool {
	if len(lines) == 1 && lines[0].failed() {
		return lines[0].Sample == id
	}
	return slices.EqualFunc(lines, cells, func(p *Prediction, c Cell) bool { return p.Sample == id && p.cell() == c.named() })
}

// add takes all lines of one sample, and the time of its prefill.
func (r *Results) add(lines []*Prediction, prefill time.Duration) error {
	data, err := encodeSample(lines)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sink != nil {
		if _, err := r.sink.Write(data); err != nil {
			return err
		}
	}
	for _, p := range lines {
		r.note(p)
	}
	if prefill > 0 {
		r.prefill += prefill
		r.prefills++
		r.caches += len(lines)
	}
	return nil
}

// Predictions are all there are, in no order.
func (r *Results) Predictions() []*Prediction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Failed is how many predictions are errors.
func (r *Results) Failed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
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
