// Package benchclock is the time that benchmarks measure with.
package benchclock

import (
	"os"
	"time"
)

var (
	start     = time.Now()
	processor = os.Getenv("GLIMPSE_BENCH_CLOCK") == "cpu"
)

// Now is the time since the program started or, where the environment variable
// GLIMPSE_BENCH_CLOCK is "cpu" and the system tells it, the processor time that this
// process has used: on a machine that others use as well, ratios of processor times of
// one thread are still true.
func Now() time.Duration {
	if processor {
		if d, ok := processorTime(); ok {
			return d
		}
	}
	return time.Since(start)
}
