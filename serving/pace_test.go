package serving

import (
	"testing"
	"time"
)

// TestPace: a client is told to wait as long as the places that it lacks take to become free.
func TestPace(t *testing.T) {
	var p pace
	if got := p.until(5); got != time.Second {
		t.Errorf("before anything has ended: got %v, want 1s", got)
	}
	now := time.Unix(1e9, 0)
	for range 50 {
		now = now.Add(3 * time.Second)
		p.ended(2, now)
	}
	now = now.Add(time.Hour) // without requests
	p.begun(now)
	p.ended(1, now.Add(1500*time.Millisecond))
	for places, want := range map[int64]time.Duration{1: 2 * time.Second, 4: 6 * time.Second, 1000: longestRetry} {
		if got := p.until(places); got != want {
			t.Errorf("%d places: got %v, want %v", places, got, want)
		}
	}
}
