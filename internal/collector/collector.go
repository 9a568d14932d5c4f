// Package collector bounds the garbage of programs whose memory is nearly all large arrays of
// numbers. The collector need not look into those, so that collecting often costs next to nothing,
// while the usual 100% would double the memory.
package collector

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Percent is the garbage that is kept, in percent of the memory in use.
const Percent = 10

// bound is how the process's collector is bound. The percentage follows the memory in use, which
// the runtime tells after every collection.
var bound struct {
	sync.Mutex
	on      bool
	least   int64
	relaxed int // how many have asked to collect seldom
	percent int
}

// Bound makes the collector keep garbage small, for the rest of the process: 10% of the memory in use,
// or least bytes, which are never too much: little garbage of a small model would be collected many
// times a second. The first call decides. Where GOGC is in the environment, the person has chosen.
func Bound(least int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	bound.Lock()
	first := !bound.on
	if first {
		bound.on, bound.least = true, least
	}
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
	wanted := percentFor(live[0].Value.Uint64(), uint64(bound.least))
	// Setting it stops the program for a moment: what is about right stays.
	if change := wanted - bound.percent; 8*max(change, -change) > bound.percent {
		bound.percent = wanted
		debug.SetGCPercent(wanted)
	}
}

// percentFor is the percentage for so many bytes in use: at most the runtime's own.
func percentFor(live, least uint64) int { return max(Percent, int(100*least/max(least, live))) }

// Seldom lets garbage grow to twice what is in use until the function that it returns is called.
func Seldom() (end func()) {
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

// Garbage is the most garbage beside so many bytes in use, under Bound of least.
func Garbage(live, least int64) int64 { return max(live*Percent/100, least) }
