package training

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// gcPercent bounds garbage to a small share of what is in use: nearly all of it is
// large arrays of numbers, which the collector need not look into, so that collecting
// often costs next to nothing, while the usual 100% would double a run's memory.
const gcPercent = 10

// gcLeast is the garbage that is never too much, in bytes. Of small models gcPercent would be
// collected 200 times a second, which took a quarter of the time of training the built-in one.
const gcLeast = 3 << 20

// bound is how the process's collector is bound. The percentage follows the memory in use, which
// the runtime tells after every collection.
var bound struct {
	sync.Mutex
	on      bool
	relaxed int // how many have asked to collect seldom
	percent int
}

// BoundMemory makes the collector keep garbage small, for the rest of the process: gcPercent
// of what is in use, or gcLeast. Where GOGC is in the environment, the person has chosen.
func BoundMemory() {
	if os.Getenv("GOGC") != "" {
		return
	}
	bound.Lock()
	first := !bound.on
	bound.on = true
	bound.Unlock()
	if first {
		followCollections()
	}
}

// followCollections sets the percentage, and again after each collection: it finalizes an
// object that nothing refers to.
func followCollections() {
	setPercent()
	runtime.SetFinalizer(new([16]byte), func(*[16]byte) { followCollections() })
}

// setPercent sets the percentage for the memory that is in use.
func setPercent() {
	bound.Lock()
	defer bound.Unlock()
	if !bound.on || bound.relaxed > 0 {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := percentFor(live[0].Value.Uint64())
	// Setting it stops the program for a moment: what is about right stays.
	if change := percent - bound.percent; 8*max(change, -change) > bound.percent {
		bound.percent = percent
		debug.SetGCPercent(percent)
	}
}

// percentFor is the percentage for so many bytes in use: at most the runtime's own.
func percentFor(live uint64) int { return max(gcPercent, int(100*gcLeast/max(gcLeast, live))) }

// collectSeldom lets garbage grow to twice what is in use until the function that it returns
// is called.
func collectSeldom() (end func()) {
	bound.Lock()
	defer bound.Unlock()
	bound.relaxed++
	before := debug.SetGCPercent(200)
	return func() {
		bound.Lock()
		defer bound.Unlock()
		bound.relaxed--
		debug.SetGCPercent(before)
	}
}

// garbage is the most garbage beside so many bytes in use.
func garbage(live int64) int64 { return max(live*gcPercent/100, gcLeast) }
