package collector

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

const least = 3 << 20

func TestPercentFor(t *testing.T) {
	for _, x := range []struct {
		live uint64
		want int
	}{{0, 100}, {least, 100}, {2 * least, 50}, {8 * least, 12}, {10 * least, 10}, {1 << 40, 10}} {
		if got := percentFor(x.live, least); got != x.want {
			t.Errorf("%d bytes in use: %d%%, want %d%%", x.live, got, x.want)
		}
	}
}

// TestBound: the percentage follows what is in use, and waits where it is asked to.
func TestBound(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() {
		bound.Lock()
		defer bound.Unlock()
		bound.on, bound.percent = false, 0
		debug.SetGCPercent(before)
	})
	set := func() int {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return int(s[0].Value.Uint64())
	}
	settles := func(want func(int) bool, what string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !want(set()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d%%", what, set())
			}
			runtime.GC()
		}
	}
	t.Setenv("GOGC", "50")
	if Bound(least); bound.on {
		t.Error("bounded, although GOGC is set")
	}
	t.Setenv("GOGC", "")
	Bound(least)
	large := make([]byte, 20*least)
	settles(func(p int) bool { return p == Percent }, "much in use")
	end := Seldom()
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if set() != 200 {
		t.Errorf("asked to collect seldom: %d%%, want 200%%", set())
	}
	end()
	settles(func(p int) bool { return p == Percent }, "as before")
	runtime.KeepAlive(large)
	large = nil
	settles(func(p int) bool { return p > Percent }, "little in use")
}
