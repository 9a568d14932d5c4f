package generation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/internal/collective"
	"glimpse/internal/hostmemory"
	"glimpse/internal/outputs"
	"glimpse/kernels"
	"glimpse/model"
)

// Run generates everything, or one shard, or all shards that are free, with the other processes that do.
func (s *Job) Run(ctx context.Context, log io.Writer) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	only, shards, err := outputs.ShardOf(s.Shard, s.Shards)
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	s.Shards = shards
	files, err := s.outputs(ctx, only)
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if s.Shards == 0 {
		leave, err := files[0].enter(ctx)
		if err != nil {
			return fmt.Errorf("generate: --out: %w", err)
		}
		defer leave()
	}
	if err := s.fetchSources(ctx, log); err != nil {
		return err
	}
	local, processes := collective.Beside(os.Getenv)
	o := engine.Options{Model: s.Model, Device: kernels.DeviceOfRank(s.Device, local, processes), CacheDType: s.CacheDType, S3: s.S3, ChatTemplate: s.ChatTemplate, ChatOptions: s.ChatOptions, ChatDate: s.ChatDate}
	m, err := o.OpenModel(ctx, log, func(m *model.Model) (err error) {
		if s.sampling, err = s.Resolve(m); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		s.sampling.Seed = s.SamplingSeed
		if len(s.Sources) == 0 && !datasets.Knows(m.Config.Vocab) {
			return fmt.Errorf("generate: model %s does not know the words of the synthetic tasks; --prompts takes a file or a folder of its own", m.Name)
		}
		return s.checkMemory(ctx, m)
	})
	if err != nil {
		return err
	}
	defer m.Close()
	s.memory, _ = m.Available(hostmemory.Available)
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	header := datasets.PairHeader{
		Model: m.Name, WeightsSHA256: hash, Seed: s.SamplingSeed, Shards: max(1, s.Shards), Data: s.promptsText(), Sampling: s.headerSampling(), Device: kernels.DeviceOf(m.Backend),
	}
	s.Report(log, m, s.sampling)
	if header, err = s.identify(ctx, m, files[0], header, log); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if s.Shards > 0 {
		if err := files[0].claimSettings(ctx, header); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	left := 0
	for _, f := range files {
		header.Shard = f.shard
		switch err := f.fill(ctx, m, header, log); {
		case errors.Is(err, errLeft):
			left++
		case err != nil:
			return fmt.Errorf("generate: %w", err)
		}
	}
	switch {
	case left > 0 && only >= 0:
		return fmt.Errorf("generate: shard %d of %d: another process is working on it", only, s.Shards)
	case left > 0:
		fmt.Fprintf(log, "%d of %d shards are being worked on by others\n", left, s.Shards)
	}
	return nil
}

// identify puts into the header what the prompts are, which must be what a generation that is gone on
// with was begun with. Where an earlier version began it, the header names weights and prompts as that did.
func (s *Job) identify(ctx context.Context, m *model.Model, f *output, h datasets.PairHeader, log io.Writer) (datasets.PairHeader, error) {
	var contents datasets.Contents
	if from, sum := m.GivenTemplate(); from != "" {
		contents.Put("chat template "+from, sum)
	}
	for i, source := range s.local {
		if err := contents.Add(ctx, s.Sources[i].Path, source.Path); err != nil {
			return h, err
		}
	}
	if len(s.Sources) == 0 {
		stream, err := datasets.StreamFor(m.Name, m.Config.Vocab, s.Tasks, s.Split, s.Tokens, s.Seed)
		if err != nil {
			return h, err
		}
		if err := contents.AddStream(stream); err != nil {
			return h, err
		}
	}
	h.Contents = contents.JSONText()
	begun, found, err := f.begunWith(ctx)
	if err != nil || !found {
		return h, err
	}
	if h.WeightsSHA256, err = m.KnownAs(ctx, begun.WeightsSHA256); err != nil {
		return h, err
	}
	if begun.Data != h.Data { // of other settings, which is told
		return h, nil
	}
	was, err := datasets.ParseContents(begun.Contents)
	if err != nil {
		return h, err
	}
	note, err := contents.Since(was, false)
	if err != nil {
		return h, fmt.Errorf("%s: %w: generate into another file or folder", s.Out, err)
	}
	if note != "" {
		fmt.Fprintln(log, note)
	}
	h.Contents = begun.Contents
	return h, nil
}
