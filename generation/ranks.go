package generation

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"

	"glimpse/datasets"
	"glimpse/internal/collective"
	"glimpse/internal/signals"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
)

// dealtPrompt is a prompt as another rank has it: what is cut of its response stays with rank 0.
type dealtPrompt struct {
	ID  string
	IDs []int32
}

// deal deals prompts to the other ranks until there are no more and all are answered.
func (q *queue) deal(ctx context.Context) error {
	return collective.Deal(ctx, q.opt.Ranks, func(ctx context.Context) (int, []byte, bool, error) {
		defer context.AfterFunc(ctx, q.endPrompts)() // whose responses others may wait for is gone
		p, at, ok, err := q.pop(true)
		if err != nil || !ok {
			return 0, nil, false, err
		}
		b, err := encodeJSON(dealtPrompt{p.ID, p.IDs})
		return at, b, err == nil, err
	}, func(at int, result []byte) error {
		var response []int32
		if err := gob.NewDecoder(bytes.NewReader(result)).Decode(&response); err != nil {
			return fmt.Errorf("response to prompt %d: %w", at, err)
		}
		return q.put(at, response)
	})
}

// dealt is a source on a rank other than 0.
type dealt struct{ *collective.Taker }

func (d dealt) pop(wait bool) (p Prompt, at int, ok bool, err error) {
	at, b, ok, err := d.Next(wait)
	if err != nil || !ok {
		return Prompt{}, 0, false, err
	}
	var x dealtPrompt
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&x); err != nil {
		return Prompt{}, 0, false, fmt.Errorf("prompt %d of rank 0: %w", at, err)
	}
	return Prompt{ID: x.ID, IDs: x.IDs}, at, true, nil
}

func (d dealt) put(at int, response []int32) error {
	b, err := encodeJSON(response)
	if err != nil {
		return err
	}
	return d.Hand(at, b)
}

func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

// Help answers prompts of rank 0's Pairs, on another rank with the same model and options.
func Help(ctx context.Context, m *model.Model, opt Options) error {
	if err := opt.resolveDefaults(); err != nil {
		return err
	}
	taker := collective.Take(ctx, opt.Ranks)
	ctx, cancel := context.WithCancelCause(taker.Context())
	defer cancel(nil)
	opt.answerPrompts(ctx, cancel, m, dealt{taker})
	return taker.Finish(context.Cause(ctx))
}

// joinRanks makes sure that all ranks would answer a prompt the same.
func (s *Job) joinRanks(ctx context.Context, m *model.Model, h datasets.PairHeader) error {
	err := collective.Same(ctx, s.Ranks, struct {
		Header             datasets.PairHeader
		Seed               uint64
		Batch              int
		Cache, Device, CPU string
	}{h, s.SamplingSeed, s.Batch, m.CacheDType().String(), kernels.DeviceOf(m.Backend), simd.Level()})
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

// announcePrompts tells the other ranks that prompts are dealt, or that there are no more.
func (s *Job) announcePrompts(ctx context.Context, more bool) error {
	said := []byte{0}
	if more {
		said[0] = 1
	}
	_, err := collective.Broadcast(ctx, s.Ranks, said)
	return err
}

// help answers prompts as long as rank 0 deals them.
func (s *Job) help(ctx context.Context, m *model.Model) error {
	for {
		said, err := collective.Broadcast(ctx, s.Ranks, nil)
		if err == nil && (len(said) == 0 || said[0] == 0) {
			return nil
		}
		if err == nil {
			err = Help(ctx, m, s.options())
		}
		if errors.Is(err, context.Canceled) { // rank 0 keeps what is finished
			return signals.Resumable(err)
		}
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
}
