package parallel

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// A goroutine that waits looks at a shared word again and again and then sleeps; to be woken
// takes about wakeTime on a virtual machine. It looks for spinLong where nearly all waits that
// outlast spinShort end by then, as on a machine that does nothing else, and for spinShort where
// they do not: where other processes want the processors, what is waited for may not have one
// for milliseconds. After every yieldEvery looks, about a microsecond, it offers its processor to
// other goroutines: spinning never keeps runnable work waiting.
const (
	spinShort  = 50 * time.Microsecond
	spinLong   = 300 * time.Microsecond
	wakeTime   = 100 * time.Microsecond
	yieldEvery = 64
)

// pool is a set of workers and the loop they work on.
//
// Each of the goroutines of a loop has an equal share of its tasks, which it runs in order, so that it
// reads memory as it lies; then it takes what is left of the shares of others. A share is
// one word: the upper half is the number of the loop (epoch), the lower half the number of its tasks that
// nobody has claimed yet. A task is claimed by decrementing the lower half with compare-and-swap, which
// fails if the epoch has moved on: a worker that comes late can neither take a task
// of a later loop for one of its own nor hold up the loop it missed. fn and tasks
// are read only between a successful claim and the matching addition to finished;
// the loop cannot end in between, so they cannot change. All shares are written before epoch, which
// says that there is a loop.
type pool struct {
	busy atomic.Bool // a loop owns the workers
	_    [64]byte

	epoch    atomic.Uint32
	_        [64]byte
	finished atomic.Int64 // tasks done or skipped
	_        [64]byte

	fn       func(int)
	tasks    int
	shares   atomic.Pointer[[]*share] // the caller's, and one of each worker
	helpers  atomic.Int64             // workers with an index below this may join the loop
	failed   atomic.Bool              // a task panicked: skip the rest
	failures atomic.Pointer[failure]

	patience     patience // of the callers; owned by the holder of busy
	callerSleeps atomic.Bool
	callerWake   chan struct{} // capacity 1; may hold a token of an earlier loop

	workers []*worker // started so far; owned by the holder of busy
}

// failure is a panic of one task; failures of one loop form a list.
type failure struct {
	task  int
	value any
	next  *failure
}

// share is the tasks of one goroutine.
type share struct {
	claim atomic.Uint64
	_     [56]byte
}

type worker struct {
	index    int
	patience patience
	sleeps   atomic.Bool
	wake     chan struct{} // capacity 1
	_        [64]byte
}

var shared = &pool{callerWake: make(chan struct{}, 1)}

func (p *pool) acquire() bool { return !p.busy.Load() && p.busy.CompareAndSwap(false, true) }

func (p *pool) release() {
	p.fn = nil // do not keep the closure's captures alive
	p.busy.Store(false)
}

// runLoop executes one loop on n goroutines, the caller included. The caller holds
// busy. It returns, or panics, only after every claimed task has ended.
func (p *pool) runLoop(n, tasks int, fn func(int)) {
	p.fn, p.tasks = fn, tasks
	p.finished.Store(0)
	p.failed.Store(false)
	p.failures.Store(nil)
	p.helpers.Store(int64(n - 1))
	epoch := p.epoch.Load() + 1
	for i, s := range p.sharesOf(n)[:n] {
		s.claim.Store(uint64(epoch)<<32 | uint64(p.firstOf(i+1)-p.firstOf(i)))
	}
	p.epoch.Store(epoch)
	for len(p.workers) < n-1 {
		w := &worker{index: len(p.workers), wake: make(chan struct{}, 1)}
		p.workers = append(p.workers, w)
		go p.serve(w, epoch-1)
	}
	for _, w := range p.workers[:n-1] {
		if w.sleeps.Load() && w.sleeps.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}

	// A task on this goroutine may call runtime.Goexit; then only the deferred call
	// keeps the workers from outliving the loop.
	defer p.waitDone()
	p.work(epoch, 0)
	p.waitDone()
	if f := p.failures.Load(); f != nil {
		first := f
		for ; f != nil; f = f.next {
			if f.task < first.task {
				first = f
			}
		}
		panic(first.value)
	}
}

// sharesOf returns shares of at least n goroutines. The caller holds busy.
func (p *pool) sharesOf(n int) []*share {
	var shares []*share
	if s := p.shares.Load(); s != nil {
		shares = *s
	}
	if len(shares) >= n {
		return shares
	}
	more := slices.Clone(shares)
	for len(more) < n {
		more = append(more, new(share))
	}
	p.shares.Store(&more)
	return more
}

// firstOf returns the first task of share i.
func (p *pool) firstOf(i int) int { return int(int64(p.tasks) * int64(i) / (p.helpers.Load() + 1)) }

// work claims and runs tasks of a loop until none is left, from the given share on.
func (p *pool) work(epoch uint32, own int) {
	for !p.workUntilPanic(epoch, own) {
	}
}

// workUntilPanic claims and runs tasks until none is left, then returns true; or
// until one panics, then records that and returns false.
func (p *pool) workUntilPanic(epoch uint32, own int) (done bool) {
	var (
		shares = *p.shares.Load()
		empty  int   // shares from own on that are
		count  int64 // tasks claimed and ended here
		task   = -1  // the one that is running
	)
	defer func() {
		if task >= 0 { // fn did not return
			v := recover()
			if v == nil {
				v = fmt.Sprintf("parallel.For: task %d called runtime.Goexit", task)
			}
			f := &failure{task: task, value: v}
			for {
				f.next = p.failures.Load()
				if p.failures.CompareAndSwap(f.next, f) {
					break
				}
			}
			p.failed.Store(true)
			count++
		}
		p.endTasks(count)
	}()
	for empty < len(shares) {
		i := (own + empty) % len(shares)
		left, ok := shares[i].claimTask(epoch)
		if !ok {
			empty++
			continue
		}
		if !p.failed.Load() {
			task = p.firstOf(i+1) - left
			p.fn(task)
			task = -1
		}
		count++
	}
	return true
}

// claimTask claims one task; left is the number of unclaimed tasks before that.
func (s *share) claimTask(epoch uint32) (left int, ok bool) {
	for {
		c := s.claim.Load()
		if uint32(c>>32) != epoch || uint32(c) == 0 {
			return 0, false
		}
		if s.claim.CompareAndSwap(c, c-1) {
			return int(uint32(c)), true
		}
	}
}

// endTasks reports count tasks as ended and wakes the caller if they were the last.
func (p *pool) endTasks(count int64) {
	if count == 0 {
		return
	}
	// After this addition the loop may be over and the fields may belong to the
	// next one: tasks is read before, and a token sent to a later caller is a
	// spurious wake-up that wait tolerates.
	tasks := int64(p.tasks)
	if p.finished.Add(count) == tasks && p.callerSleeps.Load() {
		select {
		case p.callerWake <- struct{}{}:
		default:
		}
	}
}

// waitDone returns when every task of the loop has ended.
func (p *pool) waitDone() {
	tasks := int64(p.tasks)
	p.patience.waitFor(func() bool { return p.finished.Load() == tasks }, func() {
		p.callerSleeps.Store(true)
		if p.finished.Load() != tasks {
			<-p.callerWake
		}
		p.callerSleeps.Store(false)
	})
}

// serve is the life of a worker; last is the loop before the first that it may
// join.
func (p *pool) serve(w *worker, last uint32) {
	// Reached only if a task called runtime.Goexit, which is recorded as a failure.
	// The successor joins the current loop: its tasks must not be left to nobody.
	defer func() { go p.serve(w, p.epoch.Load()-1) }()
	for {
		last = p.nextLoop(w, last)
		p.work(last, w.index+1)
	}
}

// nextLoop waits for a loop other than last that w may join and returns its number.
func (p *pool) nextLoop(w *worker, last uint32) uint32 {
	w.patience.waitFor(func() bool {
		e := p.epoch.Load()
		if e == last {
			return false
		}
		last = e
		return int64(w.index) < p.helpers.Load()
	}, func() {
		// The order matters: first announce sleep, then look once more. A loop that
		// is published after that look sees the announcement.
		w.sleeps.Store(true)
		if p.epoch.Load() != last && w.sleeps.CompareAndSwap(true, false) {
			return
		}
		<-w.wake
	})
	return last
}

// patience is how long a goroutine spins, by how its waits before have ended.
type patience struct {
	// worth is above 0 where it spins for spinLong. Of the waits that outlast spinShort it counts
	// those that end by spinLong, less lateCosts for each of the others, within worthMost of 0.
	worth int
}

const (
	lateCosts = 4
	worthMost = 8
)

// spin returns how long to.
func (p *patience) spin() time.Duration {
	if p.worth > 0 {
		return spinLong
	}
	return spinShort
}

// learn takes in a wait; one that ended asleep would have ended by wakeTime earlier.
func (p *patience) learn(waited time.Duration, asleep bool) {
	switch {
	case asleep && waited > spinLong+wakeTime:
		p.worth = max(p.worth-lateCosts, -worthMost)
	case waited > spinShort:
		p.worth = min(p.worth+1, worthMost)
	}
}

// waitFor returns when condition holds. It looks for a while and then calls sleep, which returns
// when condition may hold, as often as it must.
func (p *patience) waitFor(condition func() bool, sleep func()) {
	var start time.Time // of the second round of looks: most waits have none
	for {
		for range yieldEvery {
			if condition() {
				if !start.IsZero() {
					p.learn(time.Since(start), false)
				}
				return
			}
			pause()
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > p.spin() {
			break
		}
		runtime.Gosched()
	}
	for sleep(); !condition(); sleep() {
	}
	p.learn(time.Since(start), true)
}
