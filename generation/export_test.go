package generation

import (
	"context"
	"io"
	"sync"

	"glimpse/datasets"
	"glimpse/model"
)

// Kill leaves a shard as a killed process would: nothing is sent any more, and the
// claim is not released.
func (s *StoredShard) Kill() {
	s.stopSaving()
	s.claim.Stop()
	s.Shard.Release()
}

// SaveNow sends what there is, as happens from time to time.
func (s *StoredShard) SaveNow() error { return s.save(s.Context()) }

// Used generates for prompts of a model and returns the bytes that caches and scratch
// memory then have, and for how many sequences.
func Used(ctx context.Context, m *model.Model, prompt func(i int) []int32, prompts int, opt Options) (cache, scratch int64, sequences int, err error) {
	defer func(before []int32) { m.Config.EOS = before }(m.Config.EOS)
	m.Config.EOS = nil
	if err := opt.resolve(); err != nil {
		return 0, 0, 0, err
	}
	groups, size := opt.groups(m)
	for range min(groups, (prompts+size-1)/size) { // one after the other: each meets as many prompts as it can have
		share := min(prompts-sequences, size)
		given, most := 0, 2*share
		q := &queue{sink: discard{}, opt: opt, out: make(map[int]Prompt), ready: make(map[int]datasets.Pair), ahead: 4 * opt.Batch, next: func() (Prompt, error) {
			if given++; given > most {
				return Prompt{}, io.EOF
			}
			return Prompt{IDs: prompt(given)}, nil
		}}
		q.cond = sync.NewCond(&q.mu)
		g := &group{m: m, r: m.NewRunner(), from: q, opt: opt, size: size}
		if prompts <= size { // no more than these
			most = share
		}
		if err := g.run(ctx); err != nil {
			return 0, 0, 0, err
		}
		for _, c := range g.free {
			cache += c.Bytes()
		}
		scratch += g.r.ScratchBytes()
		sequences += share
	}
	return cache, scratch, sequences, nil
}

type discard struct{}

func (discard) Write(datasets.Pair) error { return nil }

var PromptError = promptError
