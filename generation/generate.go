package generation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/jobs"
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
}

// PairSink takes pairs in order.
type PairSink interface{ Write(p datasets.Pair) error }

// errLater is what gives prompts says where there may be more later: other processes have them now.
var errLater = errors.New("later")

// Pairs generates a response for every prompt that next gives, until io.EOF, and
// writes the pairs in the prompts' order. A prompt that does not fit the context is an
// error that names it. A response depends on its prompt, the settings and Batch; not on
// threads, other prompts or on where a run was resumed. Next is called, and w is written to, by one at a time.
func Pairs(ctx context.Context, m *model.Model, next func() (Prompt, error), w PairSink, opt Options) error {
	if err := opt.resolveDefaults(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := &queue{next: next, sink: w, opt: opt, out: make(map[int]Prompt), ready: make(map[int]datasets.Pair), ahead: 4 * opt.Batch}
	q.cond = sync.NewCond(&q.mu)
	defer context.AfterFunc(ctx, q.endPrompts)()
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
	if o.Batch == 0 {
		o.Batch = 8
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

// pop gives a prompt and its number. With wait it waits until there may be one; ok is
// false where there is none, or none now.
func (q *queue) pop(ctx context.Context, wait bool) (p Prompt, at int, ok bool, err error) {
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
	for p, err = q.next(); errors.Is(err, errLater); p, err = q.next() {
		if !wait {
			return Prompt{}, 0, false, nil
		}
		q.mu.Unlock()
		err := jobs.Wait(ctx)
		if q.mu.Lock(); err != nil {
			return Prompt{}, 0, false, err
		}
	}
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

// put takes the response to prompt at, before it is cut. It writes a pair when all before it are written.
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
	}
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
	type asked struct {
		id string
		at int
	}
	of := make(map[*engine.Answer]asked)
	for {
		for len(of) < g.size {
			p, at, ok, err := g.from.pop(ctx, len(of) == 0)
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
