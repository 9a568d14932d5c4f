//go:build unix

package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestInterruptedProgress: a bar that is interrupted, in a window that has changed, leaves one
// line at most, and the message below it.
func TestInterruptedProgress(t *testing.T) {
	const seed = 2
	r := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		p := onTerminal(t, 120, "eval", "--policy", "full,snapkv,h2o", "--budget", "16,32", "--samples", "500")
		p.Wait("prompts")
		for _, columns := range []int{100, 45, 60, 30, 80} {
			time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond)
			p.Resize(columns)
		}
		p.Type(interrupt)
		if code := p.Exit(); code != 130 {
			t.Errorf("exit code %d, want 130", code)
		}
		if n := strings.Count(p.Screen(), "prompts  "); n > 1 || !strings.Contains(p.Screen(), "evict: stopped by a signal") {
			t.Errorf("%d lines of the bar:\n%s", n, p.Screen())
		}
	}
}
