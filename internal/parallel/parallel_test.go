package parallel

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// withThreads sets the thread count for one test.
func withThreads(t testing.TB, n int) {
	previous := SetThreads(n)
	t.Cleanup(func() { SetThreads(previous) })
}

func TestForRunsEachTaskOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		for _, tasks := range []int{-1, 0, 1, 2, 7, 64, 1000} {
			t.Run(fmt.Sprintf("threads=%d/tasks=%d", threads, tasks), func(t *testing.T) {
				withThreads(t, threads)
				for range 50 {
					// Plain integers: under -race this also proves that the caller sees
					// what the tasks wrote.
					calls := make([]int, max(tasks, 0))
					For(tasks, func(task int) { calls[task]++ })
					for task, n := range calls {
						if n != 1 {
							t.Fatalf("task %d ran %d times", task, n)
						}
					}
				}
			})
		}
	}
}

// Loops with pauses between them find the workers spinning, about to sleep, and
// asleep.
func TestForAfterPauses(t *testing.T) {
	withThreads(t, 4)
	for i := range 300 {
		var sum atomic.Int64
		For(9, func(task int) { sum.Add(int64(task)) })
		if sum.Load() != 36 {
			t.Fatalf("loop %d: sum of the tasks %d, want 36", i, sum.Load())
		}
		time.Sleep(time.Duration(i%100) * 2 * time.Microsecond)
	}
}

// Two tasks that wait for each other end only if they run at the same time.
func TestForRunsAtTheSameTime(t *testing.T) {
	withThreads(t, 2)
	for range 20 {
		var meet sync.WaitGroup
		meet.Add(2)
		For(2, func(int) { meet.Done(); meet.Wait() })
	}
}

// Each goroutine begins with a share of its own, and one that has no task left takes those of others: the first task of the
// second share begins before any but the first of all, and ends when somebody else has run all others.
func TestForShares(t *testing.T) {
	withThreads(t, 2)
	for range 20 {
		const tasks, second = 101, 50
		var others sync.WaitGroup
		others.Add(tasks - 1)
		begun := make(chan struct{})
		For(tasks, func(task int) {
			switch task {
			case 0:
				<-begun
			case second:
				close(begun)
				others.Wait()
				return
			default:
				select {
				case <-begun:
				default:
					t.Errorf("task %d ran before task %d had begun", task, second)
				}
			}
			others.Done()
		})
	}
}

func TestForUsesAtMostThreads(t *testing.T) {
	for _, threads := range []int{4, 2, 3} { // also shrinks: workers 2 and 3 exist already
		withThreads(t, threads)
		var running, peak atomic.Int64
		For(64, func(int) {
			n := running.Add(1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			time.Sleep(100 * time.Microsecond)
			running.Add(-1)
		})
		if p := peak.Load(); p > int64(threads) {
			t.Errorf("%d tasks at the same time, want at most %d", p, threads)
		}
	}
}

func TestNestedForRunsInline(t *testing.T) {
	withThreads(t, 4)
	var counts [8][8][8]int
	For(8, func(i int) {
		order := make([]int, 0, 8)
		For(8, func(j int) {
			order = append(order, j)
			For(8, func(k int) { counts[i][j][k]++ })
		})
		if !slices.IsSorted(order) {
			panic(fmt.Sprintf("inner tasks ran in order %v", order))
		}
	})
	for i := range counts {
		for j := range counts[i] {
			for k, n := range counts[i][j] {
				if n != 1 {
					t.Fatalf("task %d.%d.%d ran %d times", i, j, k, n)
				}
			}
		}
	}
}

func TestForFromManyGoroutines(t *testing.T) {
	withThreads(t, 3)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for tasks := range 60 {
				calls := make([]int, tasks)
				For(tasks, func(task int) { calls[task]++ })
				for task, n := range calls {
					if n != 1 {
						t.Errorf("task %d of %d ran %d times", task, tasks, n)
					}
				}
			}
		})
	}
	callers.Wait()
}

func TestPanicReachesTheCaller(t *testing.T) {
	cause := errors.New("task failed")
	for _, threads := range []int{1, 2, 4} {
		for _, bad := range []int{0, 5, 31} {
			t.Run(fmt.Sprintf("threads=%d/task=%d", threads, bad), func(t *testing.T) {
				withThreads(t, threads)
				for range 20 {
					func() {
						defer func() {
							if v := recover(); v != cause {
								t.Errorf("recovered %v, want the value of the panic", v)
							}
						}()
						For(32, func(task int) {
							if task == bad {
								panic(cause)
							}
						})
						t.Error("For returned")
					}()
				}
				// The workers are still there, and nothing of the failure is left.
				var ran atomic.Int64
				For(32, func(int) { ran.Add(1) })
				if ran.Load() != 32 {
					t.Errorf("after a panic %d of 32 tasks ran", ran.Load())
				}
			})
		}
	}
}

// All tasks run at once and all panic: the lowest wins.
func TestPanicOfTheLowestTask(t *testing.T) {
	withThreads(t, 4)
	var meet sync.WaitGroup
	meet.Add(4)
	defer func() {
		if v := recover(); v != 0 {
			t.Errorf("recovered %v, want 0", v)
		}
	}()
	For(4, func(task int) {
		meet.Done()
		meet.Wait()
		panic(task)
	})
}

func TestGoexitInTask(t *testing.T) {
	withThreads(t, 3)
	for range 20 {
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			For(16, func(task int) {
				if task%2 == 1 {
					runtime.Goexit()
				}
			})
			panic("For returned")
		}()
		select {
		case v := <-ended: // nil where the caller itself was ended
			if v == "For returned" {
				t.Fatal(v)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("For did not end")
		}
		var ran atomic.Int64
		For(16, func(int) { ran.Add(1) })
		if ran.Load() != 16 {
			t.Fatalf("afterwards %d of 16 tasks ran", ran.Load())
		}
	}
}

func TestForDoesNotAllocate(t *testing.T) {
	withThreads(t, 4)
	var sink [16]int
	fn := func(task int) { sink[task]++ }
	For(16, fn) // starts the workers
	if n := testing.AllocsPerRun(200, func() { For(16, fn) }); n != 0 {
		t.Errorf("%v allocations per loop, want 0", n)
	}
}

func TestIdleWorkersSleep(t *testing.T) {
	withThreads(t, 3)
	For(3, func(int) {})
	deadline := time.Now().Add(10 * time.Second)
	for {
		asleep := 0
		for _, w := range shared.workers {
			if w.sleeps.Load() {
				asleep++
			}
		}
		if asleep == len(shared.workers) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d workers sleep", asleep, len(shared.workers))
		}
		time.Sleep(time.Millisecond)
	}
}

// TestPatience: to look on for long has to have been right nearly every time.
func TestPatience(t *testing.T) {
	const short, middle, woken, long = spinShort / 2, spinLong / 2, spinLong + wakeTime/2, 10 * spinLong
	for _, c := range []struct {
		name        string
		waits       []time.Duration // again and again; those beyond what is looked for end asleep
		least, most int             // of 100 waits, those before which it looks for long
	}{
		{"ends at once", []time.Duration{short}, 0, 0},
		{"ends while it looks on", []time.Duration{middle}, 99, 99},
		{"would have ended before it is woken", []time.Duration{woken}, 99, 99},
		{"never ends by then", []time.Duration{long}, 0, 0},
		{"nearly every time", []time.Duration{middle, middle, short, middle, middle, middle, middle, middle, middle, long}, 99, 99},
		{"three times of four", []time.Duration{middle, middle, middle, long}, 0, 20},
		{"half of the time", []time.Duration{middle, long}, 0, 1},
		{"as often at once", []time.Duration{middle, short, short, long, long}, 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p patience
			n := 0
			for i := range 100 {
				if p.spin() == spinLong {
					n++
				}
				waited := c.waits[i%len(c.waits)]
				p.learn(waited, waited > p.spin())
			}
			if n < c.least || n > c.most {
				t.Errorf("looks for long before %d of 100 waits, want %d to %d", n, c.least, c.most)
			}
		})
	}
}

func TestThreads(t *testing.T) {
	withThreads(t, 5)
	if n := Threads(); n != 5 {
		t.Errorf("Threads() = %d after SetThreads(5)", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("SetThreads(0) did not panic")
		}
	}()
	SetThreads(0)
}

func BenchmarkFor(b *testing.B) {
	work := func(n int) func(int) {
		return func(int) {
			for range n {
				pause()
			}
		}
	}
	for _, c := range []struct {
		name  string
		tasks int
		fn    func(int)
	}{
		{"tasks=2/empty", 2, func(int) {}},
		{"tasks=16/empty", 16, func(int) {}},
		{"tasks=16/1us", 16, work(20)},
		{"tasks=64/1us", 64, work(20)},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(b *testing.B) {
				withThreads(b, threads)
				for b.Loop() {
					For(c.tasks, c.fn)
				}
			})
		}
	}
	b.Run("tasks=2/asleep", func(b *testing.B) {
		withThreads(b, 2)
		for b.Loop() {
			b.StopTimer()
			time.Sleep(300 * time.Microsecond)
			b.StartTimer()
			For(2, func(int) {})
		}
	})
}
