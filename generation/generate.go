package generation

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/collective"
	"glimpse/internal/parallel"
	"glimpse/model"
	"glimpse/model/runner"
)

// Prompt is what a response is generated for.
type Prompt struct {
	ID, Task string
	IDs      []int32
	// Cut is the number of response tokens kept of n; nil keeps all.
	Cut func(n int) int
}

// Options are the settings of Pairs.
type Options struct {
	MaxNew   int
	Sampling model.Sampling
	Batch    int // sequences decoded at the same time; 0 is 8
	// Memory is the most that the responses take together, in bytes beside the weights; 0: no limit.
	// Responses don't depend on it.
	Memory int64
	// OnPair is told of every pair written.
	OnPair func(p datasets.Pair)
	// Ranks answer the prompts together, each Batch at the same time; nil: this process alone.
	Ranks collective.Group
}

// PairSink takes pairs in order.
type PairSink interface{ Write(p datasets.Pair) error }

// Pairs generates a response for every prompt that next gives, until io.EOF, and
// writes the pairs in the prompts' order. A prompt that does not fit the context is an
// error that names it. A response depends on its prompt, the settings and Batch; not on
// threads, ranks, other prompts or on where a run was resumed. Of several ranks, rank 0 calls Pairs
// and the others Help.
func Pairs(ctx context.Context, m *model.Model, next func() (Prompt, error), w PairSink, opt Options) error {
	if err := opt.resolveDefaults(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := &queue{next: next, sink: w, opt: opt, out: make(map[int]Prompt), ready: make(map[int]datasets.Pair), ahead: 4 * opt.Batch * opt.Ranks.Size()}
	q.cond = sync.NewCond(&q.mu)
	defer context.AfterFunc(ctx, q.endPrompts)()
	var others sync.WaitGroup
	others.Go(func() {
		if err := q.deal(ctx); err != nil {
			cancel(err)
		}
	})
	opt.answerPrompts(ctx, cancel, m, q)
	others.Wait()
	return context.Cause(ctx)
}

// answerPrompts answers prompts until there are no more.
func (o *Options) answerPrompts(ctx context.Context, cancel context.CancelCauseFunc, m *model.Model, from source) {
	groups, size := o.groups(m)
	// As tasks: what they do inside then stays on their threads.
	parallel.For(groups, func(int) {
		g := &group{m: m, from: from, opt: *o, size: size, budget: o.Memory / int64(groups)}
		if err := g.runPrompts(ctx); err != nil {
			cancel(err)
		}
	})
}

// resolveDefaults fills in the defaults and refuses what cannot be.
func (o *Options) resolveDefaults() error {
	if o.Batch == 0 {
		o.Batch = 8
	}
	if o.Ranks == nil {
		o.Ranks = collective.Alone()
	}
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

// source is where groups have their prompts from, and where responses go.
type source interface {
	// pop gives a prompt and its number. With wait it waits until there may be one; ok is
	// false where there is none, or none now.
	pop(wait bool) (p Prompt, at int, ok bool, err error)
	// put takes the response to prompt at, before it is cut.
	put(at int, response []int32) error
}

// queue hands out prompts and puts finished pairs into their order.
type queue struct {
	mu     sync.Mutex
	cond   *sync.Cond
	next   func() (Prompt, error)
	sink   PairSink
	opt    Options
	popped int            // prompts handed out
	out    map[int]Prompt // those that are not answered
	wrote  int            // pairs written
	ready  map[int]datasets.Pair
	ahead  int // how far prompts may run before the pairs
	ended  bool
}

// endPrompts ends the prompts.
func (q *queue) endPrompts() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.cond.Broadcast()
}

func (q *queue) pop(wait bool) (p Prompt, at int, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.ended && q.popped-q.wrote >= q.ahead {
		if !wait {
			return Prompt{}, 0, false, nil
		}
		q.cond.Wait()
	}
	if q.ended {
		return Prompt{}, 0, false, nil
	}
	p, err = q.next()
	if err != nil {
		q.ended = true
		q.cond.Broadcast()
		if err == io.EOF {
			err = nil
		}
		return Prompt{}, 0, false, err
	}
	at = q.popped
	q.popped++
	q.out[at] = p
	return p, at, true, nil
}

// put writes a pair when all before it are written.
func (q *queue) put(at int, response []int32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	prompt, ok := q.out[at]
	if !ok {
		return fmt.Errorf("a response to prompt %d, which is not waited for", at)
	}
	delete(q.out, at)
	if prompt.Cut != nil {
		response = response[:prompt.Cut(len(response))]
	}
	q.ready[at] = datasets.Pair{ID: prompt.ID, Task: prompt.Task, PromptIDs: prompt.IDs, ResponseIDs: response}
	for {
		p, ok := q.ready[q.wrote]
		if !ok {
			return nil
		}
		delete(q.ready, q.wrote)
		if err := q.sink.Write(p); err != nil {
			return err
		}
		q.wrote++
		q.cond.Broadcast()
		if q.opt.OnPair != nil {
			q.opt.OnPair(p)
		}
	}
}

// group answers prompts in an engine of its own.
type group struct {
	m      *model.Model
	from   source
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
	type asked struct {
		id string
		at int
	}
	of := make(map[*engine.Answer]asked)
	for {
		for len(of) < g.size {
			p, at, ok, err := g.from.pop(len(of) == 0)
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
			of[a] = asked{p.ID, at}
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
				return fmt.Errorf("prompt %s: %w", p.id, err)
			}
			delete(of, a)
			if err := g.from.put(p.at, a.Tokens()); err != nil {
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
