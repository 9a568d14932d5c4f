package training

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for _, x := range []struct {
		live uint64
		want int
	}{{0, 100}, {gcLeast, 100}, {2 * gcLeast, 50}, {8 * gcLeast, 12}, {10 * gcLeast, 10}, {1 << 40, 10}} {
		if got := percentFor(x.live); got != x.want {
			t.Errorf("%d bytes in use: %d%%, want %d%%", x.live, got, x.want)
		}
	}
}

// TestBoundMemory: the percentage follows what is in use, and waits where it is asked to.
func TestBoundMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() {
		bound.Lock()
		defer bound.Unlock()
		bound.on, bound.percent = false, 0
		debug.SetGCPercent(before)
	})
	percent := func() int {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return int(s[0].Value.Uint64())
	}
	settles := func(want func(int) bool, what string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !want(percent()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d%%", what, percent())
			}
			runtime.GC()
		}
	}
	t.Setenv("GOGC", "50")
	if BoundMemory(); bound.on {
		t.Error("bounded, although GOGC is set")
	}
	t.Setenv("GOGC", "")
	BoundMemory()
	large := make([]byte, 20*gcLeast)
	settles(func(p int) bool { return p == gcPercent }, "much in use")
	end := collectSeldom()
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if percent() != 200 {
		t.Errorf("asked to collect seldom: %d%%, want 200%%", percent())
	}
	end()
	settles(func(p int) bool { return p == gcPercent }, "as before")
	runtime.KeepAlive(large)
	large = nil
	settles(func(p int) bool { return p > gcPercent }, "little in use")
}
