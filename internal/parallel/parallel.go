package parallel

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
)

// threads is the number of goroutines that work on one loop, the caller included.
var threads atomic.Int64

func init() { threads.Store(int64(runtime.GOMAXPROCS(0))) }

// Threads returns the number of goroutines that work on one loop, the caller
// included. It is GOMAXPROCS as of the start of the program until [SetThreads]
// changes it.
func Threads() int { return int(threads.Load()) }

// SetThreads sets the number of goroutines that work on one loop, the caller
// included, and returns the previous number. It affects loops that start later.
// With 1 every loop runs on its caller. It panics if n < 1.
func SetThreads(n int) (previous int) {
	if n < 1 {
		panic(fmt.Sprintf("parallel.SetThreads: %d threads, want at least 1", n))
	}
	return int(threads.Swap(int64(n)))
}

// For calls fn(0) … fn(tasks-1), each once, on up to [Threads] goroutines, and
// returns when all calls have returned; what they wrote is then visible to the
// caller. The calls must be independent: their order is not defined. For does not
// allocate.
//
// If a call panics, calls that have not started are skipped and For panics on the
// caller with the value of the panic; with the value of the lowest task if several
// calls panicked. A call that ends its goroutine with runtime.Goexit counts as a
// panic, unless it runs on the caller's own goroutine.
func For(tasks int, fn func(task int)) {
	if tasks > math.MaxInt32 {
		panic(fmt.Sprintf("parallel.For: %d tasks, want at most %d", tasks, math.MaxInt32))
	}
	n := min(int(threads.Load()), tasks)
	if n <= 1 || !shared.acquire() {
		for task := range tasks {
			fn(task)
		}
		return
	}
	defer shared.release()
	shared.runLoop(n, tasks, fn)
}

// MinWork is the number of elementary operations below which waking other threads costs
// more than it gives.
const MinWork = 1 << 15

// Tasks runs f(0) … f(n−1), independent tasks of so many elementary operations each, on
// several threads where they are worth it.
func Tasks(n, work int, f func(i int)) {
	if n*work < MinWork {
		for i := range n {
			f(i)
		}
		return
	}
	For(n, f)
}
