package generation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/hostmemory"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/model"
)

// options are the options of Pairs.
func (s *Job) options() Options {
	return Options{MaxNew: s.MaxNew, Sampling: s.sampling, Batch: s.Batch, Memory: s.memory, Ranks: s.Ranks}
}

// scanTokens is how many tokens of prompts are looked at to find the longest one.
const scanTokens = 2 << 20

// checkMemory is an error where the generation needs more memory than there is. Prompts
// have up to so many tokens as they may; where that is too much, small sources
// are looked at.
func (s *Job) checkMemory(ctx context.Context, m *model.Model) error {
	if s.Responses == "source" || s.Ranks.Rank() > 0 { // rank 0 knows the prompts
		return nil
	}
	samples := s.Samples
	if s.Shards > 0 {
		samples = (samples + s.Shards - 1) / s.Shards
	}
	check := func(tokens int) error {
		return CheckMemory(ctx, m, hostmemory.Available, tokens, samples, s.options())
	}
	if len(s.Sources) == 0 {
		return check(s.Tokens)
	}
	err := check(s.MaxPrompt)
	if errors.Is(err, model.ErrMemory) {
		if longest, ok := s.longest(ctx, m); ok {
			return check(longest)
		}
	}
	return err
}

// longest is the length of the longest prompt, if the prompts are few.
func (s *Job) longest(ctx context.Context, m *model.Model) (tokens int, ok bool) {
	next, end, err := s.stream(m)
	if err != nil {
		return 0, false // which the generation tells
	}
	defer end()
	for all := 0; all <= scanTokens; {
		x, err := next()
		if err == io.EOF {
			return tokens, true
		}
		if err == nil {
			err = x.prepare(ctx, &x)
		}
		switch {
		case errors.Is(err, ErrUnusable) || !s.Strict && ctx.Err() == nil && err != nil:
			all++ // nor do these go on forever
		case err != nil:
			return 0, false
		default:
			tokens, all = max(tokens, len(x.IDs)), all+len(x.IDs)
		}
	}
	return 0, false
}

// writePairs writes the pairs of a shard that follow the one with ID last.
func (s *Job) writePairs(ctx context.Context, m *model.Model, w PairSink, shard int, last string, done int, name string, log io.Writer) error {
	shards := max(1, s.Shards)
	total := int64(0)
	if s.Samples > 0 {
		total = int64((s.Samples - shard + shards - 1) / shards)
	}
	bar := progress.New(log, "prompts", total)
	bar.Skip(int64(done))
	records, closeRecords, err := s.stream(m)
	if err != nil {
		return err
	}
	defer closeRecords()
	skipping, unusable := last != "", 0
	bad, notices := badRecords{log: log}, progress.Notices{W: log}
	next := func() (item, error) {
		for {
			x, err := records()
			if err != nil {
				if err == io.EOF && skipping {
					return item{}, fmt.Errorf("%s: the sample %s that it ended with is not among the prompts", name, last)
				}
				return item{}, err
			}
			switch {
			case x.index%shards != shard:
				continue
			case skipping:
				skipping = x.ID != last
				continue
			}
			err = x.prepare(ctx, &x)
			if errors.Is(err, ErrUnusable) {
				unusable++
				bar.Add(1)
				continue
			}
			if err != nil && !s.Strict && len(s.Sources) > 0 && ctx.Err() == nil {
				bad.addRecord(x.ID, err)
				bar.Add(1)
				continue
			}
			if err != nil {
				return item{}, promptError(x.ID, err)
			}
			notices.Say(x.notices...)
			return x, nil
		}
	}
	tokens, empty, written := 0, 0, done
	onPair := func(p datasets.Pair) {
		written++
		tokens += len(p.ResponseIDs)
		if len(p.ResponseIDs) == 0 {
			empty++
		}
		bar.SetText(fmt.Sprintf("%d response tokens", tokens))
		bar.Add(1)
	}
	if s.Responses == "source" {
		err = s.copySource(ctx, next, w, onPair, &unusable)
	} else {
		opt := s.options()
		opt.OnPair = onPair
		if err = s.announcePrompts(ctx, true); err == nil {
			err = Pairs(ctx, m, func() (Prompt, error) {
				x, err := next()
				return x.Prompt, err
			}, w, opt)
		}
	}
	bar.Done()
	if err == nil && written == 0 && bad.n > 0 {
		err = fmt.Errorf("%s: all of %s are bad; the first: %w", name, listing.Count(bad.n, "record"), bad.first)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s: %s, %s, %s, %s left out%s\n", name, listing.Count(written, "sample"), listing.Count(tokens, "response token"), listing.Count(empty, "empty response"), listing.Count(unusable, "prompt"), bad.noteText())
	return nil
}

// badRecords are those that cannot be read, or made a prompt of.
type badRecords struct {
	log   io.Writer
	n     int
	first error
}

// toldBad is how many of them are told one by one.
const toldBad = 5

func (b *badRecords) addRecord(id string, err error) {
	if b.n++; b.n == 1 {
		b.first = promptError(id, err)
	}
	switch {
	case b.n <= toldBad:
		fmt.Fprintf(b.log, "left out: %v\n", promptError(id, err))
	case b.n == toldBad+1:
		fmt.Fprintln(b.log, "left out: more bad records, which are counted")
	}
}

func (b *badRecords) noteText() string {
	if b.n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s left out, too (--strict stops at the first)", listing.Count(b.n, "bad record"))
}

// promptError names the prompt, unless the error says where its record stands.
func promptError(id string, err error) error {
	if errors.As(err, new(*datasets.RowError)) {
		return err
	}
	return fmt.Errorf("prompt %s: %w", id, err)
}

// copySource writes the answers that the sources give, or the right ones of the synthetic tasks.
func (s *Job) copySource(ctx context.Context, next func() (item, error), w PairSink, onPair func(datasets.Pair), unusable *int) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if x.source == nil {
			*unusable++
			continue
		}
		out := x.source[:min(len(x.source), s.MaxNew)]
		if x.Cut != nil {
			out = out[:x.Cut(len(out))]
		}
		pair := datasets.Pair{ID: x.ID, PromptIDs: x.IDs, ResponseIDs: out}
		if err := w.Write(pair); err != nil {
			return err
		}
		onPair(pair)
	}
}

// item is a prompt on its way: prepare fills in its tokens.
type item struct {
	Prompt
	index   int
	source  []int32
	notices []string
	prepare func(ctx context.Context, x *item) error
}

// fetchSources brings the sources that lie in buckets to the local disk.
func (s *Job) fetchSources(ctx context.Context, log io.Writer) error {
	s.local = slices.Clone(s.Sources)
	for i := range s.local {
		path, err := objectstore.LocalData(ctx, s.local[i].Path, s.S3, log)
		if err != nil {
			return fmt.Errorf("generate: source %d: %w", i, err)
		}
		s.local[i].Path = path
	}
	return nil
}

// stream streams all prompts from the first one.
func (s *Job) stream(m *model.Model) (next func() (item, error), end func(), err error) {
	if len(s.Sources) == 0 {
		stream, err := datasets.StreamFor(m.Name, m.Config.Vocab, s.Tasks, s.Split, s.Tokens, s.Seed)
		if err != nil {
			return nil, nil, err
		}
		i := -1
		return func() (item, error) {
			if i++; i >= s.Samples {
				return item{}, io.EOF
			}
			e, err := stream.At(i)
			return item{Prompt: Prompt{ID: e.ID, Task: e.Task, IDs: e.Prompt}, index: i, source: e.Answer, prepare: func(context.Context, *item) error { return nil }}, err
		}, func() {}, nil
	}
	recipe, err := Recipes.Lookup(s.Recipe)
	if err != nil {
		return nil, nil, err
	}
	sources := s.Sources
	if s.local != nil {
		sources = s.local
	}
	mix, err := datasets.OpenMix(sources, s.Seed)
	if err != nil {
		return nil, nil, err
	}
	maxPrompt := min(s.MaxPrompt, m.Config.MaxPositions)
	return func() (item, error) {
		p, i, err := mix.Next()
		var bad *datasets.RowError
		if (err == nil || errors.As(err, &bad)) && s.Samples > 0 && i >= s.Samples {
			return item{}, io.EOF
		}
		if bad != nil { // the worker that takes the prompt tells it
			return item{index: i, prepare: func(context.Context, *item) error { return bad }}, nil
		}
		if err != nil {
			return item{}, err
		}
		id := fmt.Sprintf("%d:%s", i, p.ID)
		if len(s.Sources) == 1 && s.Shards == 0 { // otherwise it must be the only one of that name
			id = p.ID
		}
		x := item{Prompt: Prompt{ID: id}, index: i}
		x.prepare = func(ctx context.Context, x *item) error {
			rng := rand.New(rand.NewPCG(s.Seed, uint64(i)))
			made, err := recipe.Prepare(ctx, m, p, Limits{MaxPrompt: maxPrompt, Raw: s.Raw}, rng)
			if err != nil {
				return err
			}
			x.IDs, x.source, x.notices = made.IDs, made.Source, made.Notices
			x.Cut = func(n int) int { return recipe.Cut(n, rng) }
			return nil
		}
		return x, nil
	}, func() { mix.Close() }, nil
}
