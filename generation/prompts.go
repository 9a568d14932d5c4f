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
	"glimpse/model"
)

func (s *Job) options() Options {
	return Options{MaxNew: s.MaxNew, Sampling: s.sampling, Batch: s.Batch, Memory: s.memory}
}

// scanTokens is how many tokens of prompts are looked at to find the longest one.
const scanTokens = 2 << 20

// checkMemory is an error where the generation needs more memory than there is. Prompts
// have up to so many tokens as they may; where that is too much, small sources
// are looked at.
func (s *Job) checkMemory(ctx context.Context, m *model.Model) error {
	if s.Responses == "source" {
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

// badRecords are those that cannot be read, or made a prompt of.
type badRecords struct {
	log io.Writer
	n   int
}

// toldBad is how many of them are told one by one.
const toldBad = 5

func (b *badRecords) addRecord(id string, err error) {
	switch b.n++; {
	case b.n <= toldBad:
		fmt.Fprintf(b.log, "left out: %v\n", promptError(id, err))
	case b.n == toldBad+1:
		fmt.Fprintln(b.log, "left out: more bad records, which are counted")
	}
}

// promptError names the prompt, unless the error says where its record stands.
func promptError(id string, err error) error {
	if errors.As(err, new(*datasets.RowError)) {
		return err
	}
	return fmt.Errorf("prompt %s: %w", id, err)
}

// item is a prompt on its way: prepare fills in its tokens.
type item struct {
	Prompt
	task    string
	index   int
	cut     func(n int) int // the number of response tokens kept of n; nil keeps all
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
			return item{Prompt: Prompt{ID: e.ID, IDs: e.Prompt}, task: e.Task, index: i, source: e.Answer, prepare: func(context.Context, *item) error { return nil }}, err
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
			x.cut = func(n int) int { return recipe.Cut(n, rng) }
			return nil
		}
		return x, nil
	}, func() { mix.Close() }, nil
}
