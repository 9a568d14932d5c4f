package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
)

// Generate decodes the answer to the last prompt, evicting on the way where the
// policy does and reading what it chooses. Every prompt can be answered once.
func (s *Session) Generate(ctx context.Context, opt runner.GenerateOptions) (tokens []int32, ended bool, err error) {
	a, err := s.answer(ctx, opt)
	return a.Tokens(), a.Ended(), err
}

// Force answers the last prompt with given tokens (teacher forcing) and returns the
// logarithms of the probabilities that the model gives to each of them, after those before
// it: natural, finite, computed in float64 from the logits before any sampling settings. The
// policy evicts and reads at every step as it does in Generate, whose rules for the session
// hold: the prompt is answered, and the last token is run with the next turn's prompt. The
// memory that grows with the tokens is what the policy keeps, the result, and the history.
//
// A token outside the vocabulary and more tokens than the context has room for (ErrContext)
// are errors that change nothing. After another error there are log-probabilities of the
// tokens until then, and the session is unusable.
func (s *Session) Force(ctx context.Context, tokens []int32) (logProbs []float64, err error) {
	a, err := s.answer(ctx, runner.GenerateOptions{Forced: append([]int32{}, tokens...)})
	return a.LogProbs(), err
}

// answer decodes an answer by itself: a batch of one.
func (s *Session) answer(ctx context.Context, opt runner.GenerateOptions) (*runner.Sequence, error) {
	b, err := s.runtime.Runner.NewBatch(1)
	if err != nil {
		return new(runner.Sequence), err
	}
	a, err := s.Join(b, opt)
	if err != nil {
		return new(runner.Sequence), err
	}
	err = b.Run(ctx)
	return a, cmp.Or(a.Err(), err)
}

// Join lets the answer to the last prompt join a batch of the session's model. Other sessions of the batch may have any policies,
// budgets and settings: the answer does not depend on them, to the bit (see [runner.Batch]). It is what Generate decodes but for
// the rounding of the logits. Nothing is decoded before the next step. The session is in the batch until the answer has left it,
// and is then ready for another turn. Methods decide at the same time for several sessions. An error leaves the session as it is.
func (s *Session) Join(b *runner.Batch, opt runner.GenerateOptions) (*runner.Sequence, error) {
	if m := s.Model(); m != b.Model() {
		return nil, fmt.Errorf("batch of model %s: got a session of %s, want one of the same model", b.Model().Name, m.Name)
	}
	if err := s.startResponse(&opt); err != nil {
		return nil, err
	}
	a, err := b.Add(s.Cache, s.logits, opt)
	if err != nil {
		s.ready = true
	}
	return a, err
}

// startResponse begins the answer to the last prompt, whose steps go by the policy.
func (s *Session) startResponse(opt *runner.GenerateOptions) error {
	if !s.ready {
		return fmt.Errorf("generate: the last prompt is answered already, want another turn first")
	}
	s.ready = false
	if s.decode != nil {
		opt.Capture = s.decode.Capture
		opt.Capture.Spared = s.Prompt.spared()
	}
	if s.sparse != nil {
		opt.Sparse = s.chooseSparsely
		opt.SparseOnDevice = s.sparse.Recordable()
	}
	if opt.Prompt == nil {
		opt.Prompt = s.history
	}
	opt.Observe = s.observeStep
	after := opt.AfterStep
	opt.AfterStep = func() error {
		if err := s.watched.errorOf(s.policy.Name); err != nil || after == nil {
			return err
		}
		return after()
	}
	opt.OnLeave = func(a *runner.Sequence) { s.endResponse(a.Tokens(), a.Ended(), a.Err()) }
	return nil
}

// Ranked is told of the scores that a Decoding decides about a layer by after a decoding
// step: where one is not finite the step is an error (model.ErrNonFinite). They are
// read where they lie on the host.
func (s *Session) Ranked(layer int, scores *Scores) { s.watched.scores(layer, scores) }

// endResponse takes down what was answered, and with which error: one before the first token
// leaves the prompt unanswered.
func (s *Session) endResponse(tokens []int32, ended bool, err error) {
	s.ready = err != nil && len(tokens) == 0
	if err == nil {
		s.countLater()
	}
	if n := len(tokens); n > 0 {
		ran := n - 1
		if ended {
			ran = n
		}
		s.history = append(s.history, tokens[:ran]...)
		s.pending = slices.Clone(tokens[ran:])
	}
}

// observeStep counts what a step has read of a layer and lets the policy evict.
func (s *Session) observeStep(o *runner.Observation) error {
	if c := s.Prompt.Config; s.sparse == nil { // every layer that reads a cache reads all that is seen
		s.Traffic.addReads(o.Layer == c.FirstObserved(), s.seenBytes(o.Layer)*int64(len(c.Readers(o.Layer))), 0)
	}
	if s.decode == nil || !s.Prompt.decides(o.Layer) && !o.StepDone {
		return nil
	}
	return s.evictStep(o)
}

// evictStep lets the policy evict after a decoding step.
func (s *Session) evictStep(o *runner.Observation) error {
	if s.decode.StepAll != nil && o.Joint != nil && len(s.Prompt.Keep.Spans) == 0 && o.Joint.Dim0() == len(s.Prompt.layers())*s.Prompt.Config.Heads {
		if o.Layer < o.Cache.Layers()-1 {
			return nil
		}
		var entries []int
		for l := range o.Cache.Layers() {
			entries = append(entries, entriesOf(o.Cache, l)...)
		}
		if keep := s.decode.StepAll(o.Joint, entries); keep != nil {
			return o.Cache.RetainAll(keep)
		}
		return nil
	}
	if !s.Prompt.decides(o.Layer) {
		return s.retainStep(o, nil)
	}
	keep, err := s.decode.Step(o)
	if err != nil {
		return err
	}
	return s.retainStep(o, keep)
}

// retainStep retains what a layer keeps after a decoding step, nil for everything. Where
// all layers have run, and the host knows what all of them keep, that waits for the last.
func (s *Session) retainStep(o *runner.Observation, keep *kernels.Selection) error {
	if !o.StepDone || !o.Cache.On(o.Layer).Selector().OwnMemory() || keep != nil && keep.OnDevice() {
		if keep == nil {
			return nil
		}
		return o.Cache.RetainSelection(o.Layer, keep)
	}
	s.stepKept = append(slices.Grow(s.stepKept, o.Layer)[:o.Layer], keep)
	if o.Layer < o.Cache.Layers()-1 {
		return nil
	}
	var all [][]int32
	if !slices.Contains(s.stepKept, nil) {
		for _, keep := range s.stepKept {
			all = append(all, keep.Indices()...)
		}
		return o.Cache.RetainAll(kernels.HostSelection(all))
	}
	for l, keep := range s.stepKept {
		if keep == nil {
			continue
		}
		if err := o.Cache.RetainSelection(l, keep); err != nil {
			return err
		}
	}
	return nil
}

// countLater adds to the traffic what the device has counted.
func (s *Session) countLater() {
	if s.sparse == nil {
		return
	}
	for step, n := range s.sparse.Estimated() {
		s.Traffic.Bytes += n
		s.Traffic.Estimation += n
		s.Traffic.Most = max(s.Traffic.Most, s.stepBytes[step]+n)
		if step == len(s.stepBytes)-1 {
			s.Traffic.step += n
		}
	}
}

// chooseSparsely lets the policy choose and counts what is read.
func (s *Session) chooseSparsely(step *runner.SparseStep) error {
	estimation, err := s.sparse.Select(step)
	if err != nil {
		return err
	}
	read := s.seenBytes(step.Layer)
	if chosen := step.Selection; chosen != nil {
		read = 0
		for h := range chosen.Heads() {
			read += int64(chosen.Len(h)) * s.Cache.LayerPairBytes(step.Layer)
		}
		if !chosen.OnDevice() {
			step.Selection, step.Entries = nil, chosen.Indices()
		}
	}
	if step.Entries != nil {
		read = 0
		for h, idx := range step.Entries { // of query heads, where each has its own
			read += s.Cache.EntriesBytes(step.Layer, h*s.Cache.LayerKVHeads(step.Layer)/len(step.Entries), idx)
		}
	}
	first := step.Reader == s.Prompt.Config.FirstAttention()
	s.Traffic.addReads(first, read, estimation)
	if first {
		s.stepBytes = append(s.stepBytes, 0)
	}
	s.stepBytes[len(s.stepBytes)-1] = s.Traffic.step
	return nil
}

// seenBytes are the keys and values of a layer that its last token sees.
func (s *Session) seenBytes(layer int) (bytes int64) {
	window := s.Prompt.Config.Window(layer)
	for h := range s.Cache.LayerKVHeads(layer) {
		n := 0
		if window == 0 { // positions may be on the device only
			n = s.Cache.Entries(layer, h)
		} else {
			pos := s.Cache.Positions(layer, h)
			n = s.Cache.Seen(layer, h, pos[len(pos)-1], window)
		}
		bytes += s.Cache.NewestBytes(layer, h, n)
	}
	return bytes
}
