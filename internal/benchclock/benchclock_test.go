package benchclock

import (
	"testing"
	"time"
)

// TestProcessorTime: it grows while this process works and hardly while it sleeps.
func TestProcessorTime(t *testing.T) {
	if _, ok := processorTime(); !ok {
		t.Skip("this system does not tell the processor time of a process")
	}
	defer func(p bool) { processor = p }(processor)
	processor = true
	before := Now()
	time.Sleep(300 * time.Millisecond)
	if slept := Now() - before; slept > 250*time.Millisecond {
		t.Errorf("%v of processor time in 0.3 s of sleep", slept)
	}
	before, sum := Now(), 0.0
	for i := 0; Now()-before < 20*time.Millisecond; i++ {
		if sum += float64(i); i > 1e9 {
			t.Fatalf("no processor time went by, sum %v", sum)
		}
	}
	processor = false
	before = Now()
	time.Sleep(30 * time.Millisecond)
	if slept := Now() - before; slept < 30*time.Millisecond {
		t.Errorf("%v of time in 0.03 s of sleep", slept)
	}
}
