package eviction

import (
	"context"
	"fmt"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

// Batch decodes the answers of several sessions together, so that the weights are read once a
// step for all of them: sessions of one model under any policies and budgets, each with
// settings of its own. Sessions leave when their answers end, and others may join before
// any step (continuous batching).
//
// What a session answers does not depend on what else is in the batch, nor on how full it
// is, to the bit: see [runner.Batch]. It is what [Session.Generate] and [Session.Force] answer
// but for the rounding of the logits, and leaves the session as they do, ready for the next
// turn.
//
// A Batch belongs to one goroutine, as its sessions do while they are in it; prompts of other
// sessions may run on that goroutine between steps. Methods decide at the same time for
// several sessions.
type Batch struct {
	model   *model.Model
	batch   *runner.Batch
	answers map[*runner.Sequence]*Answer
}

// NewBatch returns an empty batch of at most rows sessions; of how many rows its steps are, see
// [runner.Runner.NewBatch].
func (rt *Runtime) NewBatch(rows int) (*Batch, error) {
	m := rt.Runner.Model
	// A runner of its own: steps that it has recorded stay when prompts run between them.
	b, err := runner.New(m).NewBatch(rows)
	if err != nil {
		return nil, err
	}
	return &Batch{model: m, batch: b, answers: make(map[*runner.Sequence]*Answer)}, nil
}

// Answer is the answer of one session of a batch.
type Answer struct {
	Session  *Session
	sequence *runner.Sequence
	logProbs []float64
}

// Tokens are the answer's tokens so far, without the end token.
func (a *Answer) Tokens() []int32 { return a.sequence.Tokens() }

// Ended tells whether there was an end token.
func (a *Answer) Ended() bool { return a.sequence.Ended() }

// LogProbs belong to the tokens so far of an answer that is forced.
func (a *Answer) LogProbs() []float64 { return a.logProbs }

// Err is what ended the answer early, after which the session is unusable; nil where it goes on
// or has ended as it should.
func (a *Answer) Err() error { return a.sequence.Err() }

// Len is the number of sessions in the batch, and Room that of those which may still join.
func (b *Batch) Len() int  { return b.batch.Len() }
func (b *Batch) Room() int { return b.batch.Room() }

// Generate lets a session join to decode the answer to its last prompt, as
// [Session.Generate] does. Nothing is decoded before the next step. An error leaves the
// session as it is.
func (b *Batch) Generate(s *Session, opt runner.GenerateOptions) (*Answer, error) {
	return b.addAnswer(&Answer{Session: s}, opt)
}

// Force lets a session join whose last prompt is answered with given tokens, as
// [Session.Force] does.
func (b *Batch) Force(s *Session, tokens []int32) (*Answer, error) {
	a := &Answer{Session: s}
	return b.addAnswer(a, forced(tokens, &a.logProbs))
}

func (b *Batch) addAnswer(a *Answer, opt runner.GenerateOptions) (*Answer, error) {
	s := a.Session
	if m := s.runtime.Runner.Model; m != b.model {
		return nil, fmt.Errorf("batch of model %s: got a session of %s, want one of the same model", b.model.Name, m.Name)
	}
	if err := s.startResponse(&opt); err != nil {
		return nil, err
	}
	var err error
	if a.sequence, err = b.batch.Add(s.Cache, s.logits, opt); err != nil {
		s.endResponse(nil, false, err)
		return nil, err
	}
	b.answers[a.sequence] = a
	return a, nil
}

// Step decodes a token of every answer. It returns those that have ended, each with an error
// of its own or without; their sessions have left the batch.
//
// The error is that of all: of ctx, before which nothing has run and after which the batch
// may go on; or of the device, with which every answer ends.
func (b *Batch) Step(ctx context.Context) (ended []*Answer, err error) {
	defer kernels.CatchDevice(&err)
	sequences, err := b.batch.Step(ctx)
	for _, s := range sequences {
		ended = append(ended, b.endSequence(s))
	}
	return ended, err
}

// Run takes steps until every answer has ended. Errors of single answers are theirs.
func (b *Batch) Run(ctx context.Context) error {
	for b.Len() > 0 {
		if _, err := b.Step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Remove ends an answer where it is, as if all had been said, and takes its session out of
// the batch, if it is in it.
func (b *Batch) Remove(a *Answer) (err error) {
	defer kernels.CatchDevice(&err)
	b.batch.Remove(a.sequence)
	b.endSequence(a.sequence)
	return nil
}

// endSequence makes the session of a sequence that has left ready for its next turn.
func (b *Batch) endSequence(s *runner.Sequence) *Answer {
	a, ok := b.answers[s]
	if ok {
		delete(b.answers, s)
		a.Session.endResponse(s.Tokens(), s.Ended(), s.Err())
	}
	return a
}
