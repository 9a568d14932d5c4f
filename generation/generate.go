package generation

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"

	"glimpse/datasets"
	"glimpse/internal/collective"
	"glimpse/internal/parallel"
	"glimpse/model"
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
	if err := opt.resolve(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := &queue{next: next, sink: w, opt: opt, out: make(map[int]Prompt), ready: make(map[int]datasets.Pair), ahead: 4 * opt.Batch * opt.Ranks.Size()}
	q.cond = sync.NewCond(&q.mu)
	defer context.AfterFunc(ctx, q.end)()
	var others sync.WaitGroup
	others.Go(func() {
		if err := q.deal(ctx); err != nil {
			cancel(err)
		}
	})
	opt.answer(ctx, cancel, m, q)
	others.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// answer answers prompts until there are no more.
func (o *Options) answer(ctx context.Context, cancel context.CancelCauseFunc, m *model.Model, from source) {
	groups, size := o.groups(m)
	// As tasks: what they do inside then stays on their threads.
	parallel.For(groups, func(int) {
		g := &group{m: m, r: m.NewRunner(), from: from, opt: *o, size: size}
		if err := g.run(ctx); err != nil {
			cancel(err)
		}
	})
}

// resolve fills in the defaults and refuses what cannot be.
func (o *Options) resolve() error {
	if o.Batch == 0 {
		o.Batch = 8
	}
	if o.Ranks == nil {
		o.Ranks = collective.Alone()
	}
	if o.Batch < 0 || o.Batch > model.MaxBatch {
		return fmt.Errorf("batch: got %d, want 1 to %d", o.Batch, model.MaxBatch)
	}
	return o.Sampling.Validate()
}

// groups are how many work side by side, and of how many sequences each.
func (o *Options) groups(m *model.Model) (groups, size int) {
	size = m.GroupRows(o.Batch)
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

// end ends the prompts.
func (q *queue) end() {
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

// group decodes several sequences in step.
type group struct {
	m    *model.Model
	r    *model.Runner
	from source
	opt  Options
	size int
	live []*sequence
	free []*model.Cache // of sequences that have ended
}

type sequence struct {
	at      int // number of its prompt
	cache   *model.Cache
	sampler *model.Sampler
	out     []int32
	most    int
	room    int // tokens of the response that the cache has room for
}

func (g *group) run(ctx context.Context) error {
	caches, tokens, samplers := make([]*model.Cache, 0, g.size), make([]int32, 0, g.size), make([]*model.Sampler, 0, g.size)
	for {
		for len(g.live) < g.size {
			p, at, ok, err := g.from.pop(len(g.live) == 0)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if err := g.start(ctx, p, at); err != nil {
				return fmt.Errorf("prompt %s: %w", p.ID, err)
			}
		}
		if len(g.live) == 0 {
			return ctx.Err()
		}
		caches, tokens, samplers = caches[:0], tokens[:0], samplers[:0]
		for _, s := range g.live {
			s.reserve()
			caches, tokens, samplers = append(caches, s.cache), append(tokens, s.out[len(s.out)-1]), append(samplers, s.sampler)
		}
		next, err := g.r.NextBatch(ctx, caches, tokens, g.size, samplers)
		if err != nil {
			return err
		}
		still := g.live[:0]
		for i, s := range g.live {
			done, err := g.accept(s, next[i])
			if err != nil {
				return err
			}
			if done {
				g.free = append(g.free, s.cache)
			} else {
				still = append(still, s)
			}
		}
		g.live = still
	}
}

// start runs a prompt; one whose response ends at once never joins the group.
func (g *group) start(ctx context.Context, p Prompt, at int) error {
	own := g.opt.Sampling
	if own.Temperature > 0 { // a random stream of the prompt's own
		h := fnv.New64a()
		h.Write([]byte(p.ID))
		own.Seed ^= h.Sum64()
	}
	sampler, err := model.NewSampler(own, p.IDs)
	if err != nil {
		return err
	}
	s := &sequence{at: at, cache: g.newCache(), sampler: sampler}
	logits, err := g.r.Forward(ctx, s.cache, p.IDs, model.PrefillOptions{})
	if err != nil {
		return err
	}
	first, err := sampler.Next(logits)
	if err != nil {
		return err
	}
	s.most = g.opt.most(g.m, len(p.IDs))
	done, err := g.accept(s, first)
	if err != nil || done {
		return err
	}
	s.reserve()
	g.live = append(g.live, s)
	return nil
}

// most is the most response tokens after so many of a prompt.
func (o *Options) most(m *model.Model, prompt int) int {
	return min(o.MaxNew, m.Config.MaxPositions-prompt+1) // the last token is not run
}

// newCache is an empty cache, in memory of a sequence that has ended where there is one.
func (g *group) newCache() *model.Cache {
	if n := len(g.free); n > 0 {
		c := g.free[n-1]
		g.free = g.free[:n-1]
		c.Clear()
		return c
	}
	return g.m.NewCache()
}

// leastRoom is the room made for a response at first.
const leastRoom = 64

// reserve makes room for as many tokens again as there are, where there is none left.
func (s *sequence) reserve() {
	if n := len(s.out); n > s.room {
		more := min(s.most-s.room, max(leastRoom, n))
		s.cache.Reserve(more)
		s.room += more
	}
}

// accept takes the next token, and tells that the response is done and handed in.
func (g *group) accept(s *sequence, id int32) (done bool, err error) {
	if !slices.Contains(g.m.Config.EOS, id) {
		if s.out = append(s.out, id); len(s.out) < s.most {
			return false, nil
		}
	}
	return true, g.from.put(s.at, s.out)
}
