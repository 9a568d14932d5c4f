package runner

import (
	"errors"
	"fmt"
	"slices"

	"glimpse/internal/panics"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// Sequence is one response of a batch as it grows.
type Sequence struct {
	GenerateOptions
	eos     []int32 // that end it
	sampler *sampler

	tokens []int32 // without the end token
	ended  bool    // by an end token
	done   bool    // no step is to run
	err    error   // that ended it early

	logProbs []float64 // of a forced response

	step    batchStep
	first   *Logits // of the prompt's last token, until the first step
	counted [][]int // on a model that only counts memory: the entries of the cache's heads at first
}

// newSequence begins a response after what the cache holds, whose last token gave logits.
func newSequence(m *model.Model, cache *kvcache.Cache, logits *Logits, opt GenerateOptions) (*Sequence, error) {
	if err := opt.Sampling.Validate(); err != nil {
		return nil, err
	}
	if opt.Observe != nil {
		opt.Observe = alone(opt.Observe)
	}
	if opt.Sparse != nil {
		opt.Sparse = alone(opt.Sparse)
	}
	r := &Sequence{
		GenerateOptions: opt, sampler: newSampler(opt.Sampling, opt.Prompt), eos: opt.Stop,
		step: batchStep{cache: cache}, first: logits,
	}
	r.step.opt = &r.GenerateOptions
	if m.Counts() {
		r.counted = cache.Lengths()
	}
	if opt.Forced != nil {
		r.MaxNew, r.eos, r.logProbs = len(opt.Forced), nil, make([]float64, 0, len(opt.Forced))
		r.OnLogProb = func(id int32, p float64, top []LogProb) {
			if r.logProbs = append(r.logProbs, p); opt.OnLogProb != nil {
				opt.OnLogProb(id, p, top)
			}
		}
		return r, checkForced(m, cache, opt.Forced)
	}
	if !opt.IgnoreEnd {
		r.eos = slices.Concat(m.Config.EOS, opt.Stop)
	}
	return r, nil
}

// Tokens are the response so far, without the end token; the last of them is not
// in the cache.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Ended tells whether there was an end token.
func (s *Sequence) Ended() bool { return s.ended }

// Done tells that nothing more comes.
func (s *Sequence) Done() bool { return s.done }

// LogProbs are the log-probabilities of the tokens so far, of a forced response; else nil.
func (s *Sequence) LogProbs() []float64 { return s.logProbs }

// leave is called when the sequence has left its batch.
func (s *Sequence) leave() {
	defer panics.Catch(&s.err)
	defer kernels.CatchDevice(&s.err)
	if s.OnLeave != nil {
		s.OnLeave(s)
	}
}

// alone is a call that belongs to one sequence, whose panic is its error. One of the device is everybody's.
func alone[T any](f func(T) error) func(T) error {
	return func(x T) (err error) {
		defer func() {
			switch v := recover().(type) {
			case nil:
			case *kernels.DeviceError:
				panic(v)
			default:
				err = panics.New(v)
			}
		}()
		return f(x)
	}
}

// Err is what ended the sequence early, after which its cache is unusable; nil where it goes on
// or has ended as it should.
func (s *Sequence) Err() error { return s.err }

// checkForced refuses a response before any of it has run.
func checkForced(m *model.Model, cache *kvcache.Cache, tokens []int32) error {
	for i, id := range tokens {
		if id < 0 || int(id) >= m.Config.Vocab {
			return fmt.Errorf("forced response: token %d: id %d, want 0 to %d", i, id, m.Config.Vocab-1)
		}
	}
	if n, room := len(tokens), m.Config.MaxPositions-int(cache.Next())+1; n > room { // the last token is not run
		return fmt.Errorf("forced response: %d tokens after %d, want at most %d: %w", n, cache.Next(), room, model.ErrContext)
	}
	return nil
}

// takeToken takes the next token, which follows from logits.
func (s *Sequence) takeToken(logits *Logits) error {
	s.done = len(s.tokens) >= s.MaxNew
	if s.done {
		return nil
	}
	if s.counted != nil {
		return s.acceptToken(0, nil)
	}
	id, err := s.nextToken(logits)
	if err != nil {
		s.done = true
		return err
	}
	return s.acceptToken(id, logits)
}

// nextToken is the token that follows logits, which must be finite.
func (s *Sequence) nextToken(logits *Logits) (int32, error) {
	if s.Forced != nil {
		return s.Forced[len(s.tokens)], logits.CheckFinite()
	}
	return logits.drawToken(s.sampler)
}

// acceptToken takes a token that was drawn from logits; nil where nothing is computed.
func (s *Sequence) acceptToken(id int32, logits *Logits) error {
	s.done = true
	if logits != nil && slices.Contains(s.eos, id) {
		s.ended = true
		return s.tellLogProb(s.OnEnd, id, logits)
	}
	s.tokens = append(s.tokens, id)
	if err := s.tellLogProb(s.OnLogProb, id, logits); err != nil {
		return err
	}
	if s.OnToken != nil {
		if err := s.OnToken(id); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	s.done = len(s.tokens) >= s.MaxNew
	return nil
}

func (s *Sequence) tellLogProb(tell func(id int32, logProb float64, top []LogProb), id int32, logits *Logits) error {
	if tell == nil || logits == nil {
		return nil
	}
	p, top, err := logits.LogProbs(id, s.TopLogProbs)
	if err == nil {
		tell(id, p, top)
	}
	return err
}

// skips tells that the next step need not run: on a model that only counts memory all but the
// first two; the second is recorded where a device records. The others only take memory, as far as
// heads have grown in these.
func (s *Sequence) skips() bool {
	n := len(s.tokens)
	if s.counted == nil || n <= 2 {
		return false
	}
	if n == 3 {
		s.step.cache.ReserveGrown(s.counted, s.MaxNew-n)
	}
	return true
}

// last is the token that the next step runs.
func (s *Sequence) last() []int32 { return s.tokens[len(s.tokens)-1:] }

// goOn takes the next token after a step.
func (s *Sequence) goOn(next drawnRow) {
	s.endWithError(s.step.err)
	s.endWithError(next.err)
	s.endWithError(alone(func(logits *Logits) error {
		if s.AfterStep != nil && !s.done {
			if err := s.AfterStep(); err != nil {
				return err
			}
		}
		if s.done {
			return nil
		}
		return s.takeToken(logits)
	})(next.Logits))
}

// endWithError ends the sequence with an error, unless that is nil. The first one counts.
func (s *Sequence) endWithError(err error) {
	if err != nil && s.err == nil {
		s.err, s.done = err, true
	}
}
