package generation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/jobs"
	"glimpse/model"
	"glimpse/model/runner"
)

// Prompt is what a response is generated for.
type Prompt struct {
	ID  string
	IDs []int32
	// Done takes the response.
	Done func(response []int32) error
}

// Options are the settings of Pairs.
type Options struct {
	MaxNew   int
	Sampling model.Sampling
	Batch    int // sequences decoded at the same time; 0 is 8
	// Memory is the most that the responses take together, in bytes beside the weights; 0: no limit.
	// Responses don't depend on it.
	Memory int64
}

// errLater is what gives prompts says where there may be more later: other processes have them now.
var errLater = errors.New("later")

// Pairs generates a response for every prompt that next gives, until io.EOF. A prompt that does not fit the context is an
// error that names it. A response depends on its prompt, the settings and Batch; not on
// threads, other prompts or on where a run was resumed. Next and Prompt.Done are called one at a time, in any order.
func Pairs(ctx context.Context, m *model.Model, next func() (Prompt, error), opt Options) error {
	if err := opt.resolveDefaults(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := &queue{next: next}
	groups, size := opt.groups(m)
	// As tasks: what they do inside then stays on their threads.
	parallel.For(groups, func(int) {
		g := &group{m: m, from: q, opt: opt, size: size, budget: opt.Memory / int64(groups)}
		if err := g.runPrompts(ctx); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// resolveDefaults fills in the defaults and refuses what cannot be.
func (o *Options) resolveDefaults() error {
	o.Batch = cmp.Or(o.Batch, 8)
	if o.Batch < 0 || o.Batch > runner.MaxBatch {
		return fmt.Errorf("batch: got %d, want 1 to %d", o.Batch, runner.MaxBatch)
	}
	return o.Sampling.Validate()
}

// groups are how many work side by side, and of how many sequences each.
func (o *Options) groups(m *model.Model) (groups, size int) {
	size = runner.GroupRows(m, o.Batch)
	return min(parallel.Threads(), (o.Batch+size-1)/size), size
}

// queue hands out prompts and takes responses, one at a time.
type queue struct {
	mu    sync.Mutex
	next  func() (Prompt, error)
	ended bool
}

// pop gives a prompt. With wait it waits until there may be one; ok is false where there is none, or none now.
func (q *queue) pop(ctx context.Context, wait bool) (p Prompt, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.ended && ctx.Err() == nil {
		if p, err = q.next(); !errors.Is(err, errLater) {
			q.ended = err != nil
			if err == io.EOF {
				return Prompt{}, false, nil
			}
			return p, err == nil, err
		}
		if !wait {
			break
		}
		q.mu.Unlock()
		err = jobs.Wait(ctx)
		if q.mu.Lock(); err != nil {
			return Prompt{}, false, err
		}
	}
	return Prompt{}, false, nil
}

func (q *queue) put(p Prompt, response []int32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return p.Done(response)
}

// group answers prompts in an engine of its own.
type group struct {
	m      *model.Model
	from   *queue
	opt    Options
	size   int   // answers that are decoded together
	budget int64 // of the engine
}

func (g *group) runPrompts(ctx context.Context) error {
	full, err := eviction.New("full", 0, nil, nil)
	if err != nil {
		return err
	}
	rt := eviction.NewRuntime(g.m)
	e, err := engine.New(rt, g.size)
	if err != nil {
		return err
	}
	defer e.Close()
	e.Budget = g.budget
	of := make(map[*engine.Answer]Prompt)
	for {
		for len(of) < g.size {
			p, ok, err := g.from.pop(ctx, len(of) == 0)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			s, err := rt.NewSession(full, eviction.Pairs(g.m.Config.MaxPositions))
			if err != nil {
				return err
			}
			a, err := e.Submit(engine.Request{Session: s, Prompt: p.IDs, Generate: runner.GenerateOptions{MaxNew: g.opt.MaxNew, Sampling: g.opt.sampling(p.ID)}})
			if err != nil {
				return fmt.Errorf("prompt %s: %w", p.ID, err)
			}
			of[a] = p
		}
		if len(of) == 0 {
			return ctx.Err()
		}
		events, err := e.Step(ctx)
		if err != nil {
			return err
		}
		for _, event := range events {
			if !event.Done {
				continue
			}
			a, p := event.Answer, of[event.Answer]
			if err := a.Err(); err != nil {
				return fmt.Errorf("prompt %s: %w", p.ID, err)
			}
			delete(of, a)
			if err := g.from.put(p, a.Tokens()); err != nil {
				return err
			}
		}
	}
}

// sampling is that of the response to a prompt, with a random stream of its own.
func (o *Options) sampling(id string) model.Sampling {
	own := o.Sampling
	if own.Temperature > 0 {
		h := fnv.New64a()
		h.Write([]byte(id))
		own.Seed ^= h.Sum64()
	}
	return own
}
