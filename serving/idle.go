package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/runner"
)

// answered is an answer that has ended by itself or at its limit, by ids.
type answered struct {
	id               string
	prompt, response []int32
	ended            bool // by an end token, which response does not have
	policy           engine.Policy
	budget           string // as it was asked for
	pairs            int    // per KV head and layer, that it came to
	keep             eviction.Keep
	own              bool // policy and budget are the server's, as the request names none
	stop             []string
	generate         runner.GenerateOptions
	constraint       func() model.Constraint
}

// ended gives an answer to what is done with it later.
func (w *worker) ended(c *choice) {
	switch r := c.said.reason; {
	case !c.remembered || c.err != nil:
	case r == engine.End || r == engine.StopText || r == engine.MaxNew || r == engine.Context:
		request := &c.answer.Request
		a := &answered{
			id: fmt.Sprintf("%s-%d", c.id, c.index), prompt: request.Prompt, response: c.answer.Tokens(), ended: r == engine.End,
			policy: c.policy, budget: c.budget.String(), pairs: c.session().Prompt.Budget, keep: c.session().Keep, own: c.standard, stop: c.stop, generate: request.Generate, constraint: c.constraint,
		}
		w.recorder.offer(a)
		w.idle.offer(a)
	}
}

// Bounds of the tasks that wait for an idle moment, and of the budgets that metrics tell apart.
const (
	maxIdle    = 64
	maxBudgets = 64
)

// idle does work on answers while there are no requests, on the worker's goroutine, in units of its own: a chunk of a prompt in a
// layer, or a step of a response. On a model that is on several devices a whole prompt is one unit. What is under way when a request comes is given up, with its memory, and begun anew after the others.
type idle struct {
	engine      *engine.Engine
	runtime     *eviction.Runtime      // of the engine, which is idle meanwhile
	memory      int64                  // that there is for it; 0: it is not bounded
	verifyShare float64                // of greedy answers
	watch       *watch                 // of the promise, on these; nil: none
	shadow      *engine.Policy         // nil: none
	oracle      *eviction.Configured   // that it is measured by
	shadowShare float64                // of answers
	budgets     map[[2]string]struct{} // with their policies, that metrics tell apart
	rng         *rand.Rand
	metrics     *metrics
	log         *slog.Logger

	queue []idleTask
	task  idleTask      // that is under way
	units *runner.Units // of it; nil: there is none
}

// newIdle returns nil where nothing is to be done.
func newIdle(w *worker, m *engine.Model, c *Config, watched *watch) (i *idle, err error) {
	if c.VerifyShare == 0 && (c.Shadow == "" || c.ShadowShare == 0) {
		return nil, nil
	}
	i = &idle{
		engine: w.engine, runtime: w.runtime, memory: w.engine.Budget, verifyShare: c.VerifyShare, watch: watched, shadowShare: c.ShadowShare,
		budgets: make(map[[2]string]struct{}), rng: rand.New(rand.NewPCG(c.Seed, 2)), metrics: w.metrics, log: c.Log,
	}
	if c.Shadow == "" {
		return i, nil
	}
	shadow, err := openShadow(context.Background(), m, c.Shadow, c.Policy)
	if err != nil {
		return nil, err
	}
	i.shadow = &shadow
	i.oracle, err = eviction.New("oracle", c.Seed, nil, nil)
	return i, err
}

// idleTask is a piece of work on an answer.
type idleTask struct {
	name string
	run  func(ctx context.Context, a *answered) error
	// count makes the allocations of run on a runtime without numbers.
	count func(ctx context.Context, rt *eviction.Runtime, a *answered) error
	of    *answered
	need  int64 // bytes beside the weights; 0: not counted
}

// offer takes an answer, unless chance says no or it tells nothing: where all of the prompt was kept, or nothing was said.
func (i *idle) offer(a *answered) {
	if i == nil {
		return
	}
	if a.pairs >= len(a.prompt) || len(a.response) == 0 {
		if i.watches(a) && a.generate.Sampling.Temperature == 0 && i.rng.Float64() < i.verifyShare {
			// It has lost nothing, which counts. It waits as others do: they may find the queue full.
			i.pushTask(idleTask{name: "verify", run: i.verifyWhole, count: countNothing, of: a})
		}
		return
	}
	if a.generate.Sampling.Temperature == 0 && a.policy.Name != "full" && i.rng.Float64() < i.verifyShare {
		i.pushTask(idleTask{name: "verify", run: i.verify, count: i.countVerify, of: a})
	}
	if i.shadow != nil && i.rng.Float64() < i.shadowShare {
		i.pushTask(idleTask{name: "shadow", run: i.compareKept, count: i.countCompare, of: a})
	}
}

func (i *idle) pushTask(t idleTask) {
	if len(i.queue) >= maxIdle {
		i.countTask(t, "queue_full")
		return
	}
	i.queue = append(i.queue, t)
}

// errTooLong tells of work that needs more memory than there is for it.
var errTooLong = errors.New("too long")

// makeRoom lets go of kept sessions for a piece of work, whose need it counts.
func (i *idle) makeRoom(ctx context.Context, t *idleTask) (err error) {
	if i.memory == 0 {
		return nil
	}
	if t.need == 0 {
		t.need, err = eviction.PeakOf(i.runtime.Runner.Model, func(rt *eviction.Runtime) error { return t.count(ctx, rt, t.of) })
	}
	switch {
	case err != nil:
		t.need = 0
		return err
	case t.need > i.memory:
		return errTooLong
	}
	i.engine.LetGo(i.memory - t.need)
	return nil
}

func (i *idle) countTask(t idleTask, outcome string) {
	i.metrics.idle.WithLabelValues(t.name, outcome).Inc()
}

// unit does some work, if there is any.
func (i *idle) unit() bool {
	if i == nil || i.units == nil && len(i.queue) == 0 {
		return false
	}
	if i.units == nil {
		i.task = i.queue[0]
		i.queue = slices.Delete(i.queue, 0, 1)
		i.units = runner.NewUnits(context.Background(), func(ctx context.Context) error {
			if err := i.makeRoom(ctx, &i.task); err != nil {
				return err
			}
			return i.task.run(ctx, i.task.of)
		})
	}
	if !i.units.RunUnit() {
		i.endTask()
	}
	return true
}

// endTask is the end of the task under way, which is begun anew where it was given up.
func (i *idle) endTask() {
	t, err := i.task, i.units.Err()
	i.task, i.units = idleTask{}, nil
	switch {
	case errors.Is(err, context.Canceled):
		i.countTask(t, "interrupted")
		i.pushTask(t)
	case errors.Is(err, errTooLong):
		i.countTask(t, "too_long")
	case err != nil:
		i.countTask(t, "failed")
		i.log.Error("idle work failed", "work", t.name, "id", t.of.id, "error", err)
	default:
		i.countTask(t, "done")
	}
}

// yield gives up what is under way.
func (i *idle) yield() {
	if i != nil && i.units != nil {
		i.units.Stop()
		i.endTask()
	}
}
