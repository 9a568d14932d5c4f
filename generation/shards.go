package generation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/internal/hostmemory"
	"glimpse/kernels"
	"glimpse/model"
)

// Run generates everything, or one shard, or all shards that are free.
func (s *Job) Run(ctx context.Context, log io.Writer) error {
	only, err := s.checkShard()
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if err := errors.Join(model.CheckCacheDType(s.CacheDType), s.Check(), s.checkChat()); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	writes := s.Ranks.Rank() == 0
	if !writes {
		log = io.Discard
	}
	if s.Shards == 0 && writes {
		unlock, err := s.claimFile()
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		defer unlock()
	}
	var open openShard
	if writes {
		if open, err = s.shardOpener(ctx); err != nil {
			return err
		}
		if err := s.fetchSources(ctx, log); err != nil {
			return err
		}
	}
	device := kernels.DeviceOfRank(s.Device, s.Ranks.Local(), s.Ranks.Size())
	o := engine.Options{Model: s.Model, Device: device, CacheDType: s.CacheDType, S3: s.S3, ChatTemplate: s.ChatTemplate, ChatOptions: s.ChatOptions, ChatDate: s.ChatDate}
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
	if err := s.joinRanks(ctx, m, header); err != nil {
		return err
	}
	if !writes {
		return s.help(ctx, m)
	}
	if header, err = s.identify(ctx, m, header, log); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if s.Shards == 0 {
		err = s.fillFile(ctx, m, header, log)
	} else {
		err = s.fillShards(ctx, m, only, open, header, log)
	}
	if err != nil {
		return err
	}
	return s.announcePrompts(ctx, false)
}

// identify puts into the header what the prompts are, which must be what a generation that is gone on
// with was begun with. Where an earlier version began it, the header names weights and prompts as that did.
func (s *Job) identify(ctx context.Context, m *model.Model, h datasets.PairHeader, log io.Writer) (datasets.PairHeader, error) {
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
	begun, found, err := s.begun(ctx)
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

// begun is the header of the file that is gone on with, if any.
func (s *Job) begun(ctx context.Context) (h datasets.PairHeader, found bool, err error) {
	switch {
	case s.Shards == 0 && s.Resume:
		h, found = datasets.BegunFile(s.Out)
	case s.Shards == 0:
	case objectstore.IsURL(s.Out):
		store, folder, err := objectstore.Open(ctx, s.Out, s.S3)
		if err != nil {
			return h, false, err
		}
		return Stored{Store: store, Folder: folder}.Begun(ctx)
	default:
		h, found = datasets.BegunShards(s.Out)
	}
	return h, found, nil
}

// fillShards fills the shards that are free, or only the one of that number.
func (s *Job) fillShards(ctx context.Context, m *model.Model, only int, open openShard, header datasets.PairHeader, log io.Writer) error {
	shards := []int{only}
	if only < 0 {
		shards = shards[:0]
		for i := range s.Shards {
			shards = append(shards, i)
		}
	}
	claimed, seen, look := 0, make(map[int]string), time.Duration(0)
	for len(shards) > 0 {
		var again []int
		for _, i := range shards {
			header.Shard = i
			err := s.fillShard(m, open, header, log)
			var claim *objectstore.ClaimedError
			switch {
			case errors.Is(err, datasets.ErrFinished):
				fmt.Fprintf(log, "shard %d of %d is finished already\n", i, s.Shards)
			case errors.As(err, &claim) && (seen[i] == "" || seen[i] == claim.Sign):
				// Of a worker that lives, or that was killed a short while ago: time will tell.
				seen[i] = claim.Sign
				again = append(again, i)
			case s.Ranks.Size() > 1 && errors.Is(err, objectstore.ErrClaimLost):
				return fmt.Errorf("generate: %w", err) // in the midst of the other ranks' work
			case only < 0 && (errors.Is(err, datasets.ErrClaimed) || errors.Is(err, objectstore.ErrClaimed) || errors.Is(err, objectstore.ErrClaimLost)):
				claimed++
			case err != nil:
				return fmt.Errorf("generate: %w", err)
			}
		}
		if shards = again; len(shards) == 0 {
			break
		}
		if look == 0 {
			fmt.Fprintf(log, "%d of %d shards are claimed by others; looking whether these still live\n", len(shards), s.Shards)
		}
		look = min(max(2*look, firstLook), lastLook)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(look):
		}
	}
	if claimed > 0 {
		fmt.Fprintf(log, "%d of %d shards are being worked on by others\n", claimed, s.Shards)
	}
	return nil
}

// The time between two looks at claims in a bucket, which grows. An owner that lives
// shows it within 20 s.
const (
	firstLook = 500 * time.Millisecond
	lastLook  = 5 * time.Second
)

// shard is a shard to be filled, on a folder or in a bucket.
type shard interface {
	PairSink
	Commit() error
	Release()
}

// openShard claims a shard, which tells in begun what is there already. Work on it ends with the context.
type openShard func(h datasets.PairHeader) (w shard, begun *datasets.Shard, work context.Context, err error)

// shardOpener gives the function that claims shards of the output.
func (s *Job) shardOpener(ctx context.Context) (openShard, error) {
	if !objectstore.IsURL(s.Out) {
		return func(h datasets.PairHeader) (shard, *datasets.Shard, context.Context, error) {
			w, err := datasets.OpenShard(s.Out, h)
			return w, w, ctx, err
		}, nil
	}
	store, folder, err := objectstore.Open(ctx, s.Out, s.S3)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	stored := Stored{Store: store, Folder: folder}
	return func(h datasets.PairHeader) (shard, *datasets.Shard, context.Context, error) {
		w, err := stored.Open(ctx, h)
		if err != nil {
			return nil, nil, nil, err
		}
		return w, w.Shard, w.Context(), nil
	}, nil
}

func (s *Job) fillShard(m *model.Model, open openShard, h datasets.PairHeader, log io.Writer) error {
	w, begun, work, err := open(h)
	if err != nil {
		return err
	}
	defer w.Release()
	name := fmt.Sprintf("shard %d of %d", h.Shard, h.Shards)
	if begun.Done > 0 {
		fmt.Fprintf(log, "%s goes on after %d samples\n", name, begun.Done)
	}
	if err := s.writePairs(work, m, w, h.Shard, begun.Last, begun.Done, name, log); err != nil {
		return err
	}
	return w.Commit()
}
