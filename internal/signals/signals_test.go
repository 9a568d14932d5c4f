package signals

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// TestOnInterrupt: an interrupt that a command takes ends nothing, and one that it does not
// take ends the context.
func TestOnInterrupt(t *testing.T) {
	ctx, stop := Notify(context.Background())
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var take atomic.Bool
	seen := make(chan struct{}, 1)
	restore := OnInterrupt(ctx, func() bool {
		seen <- struct{}{}
		return take.Load()
	})
	send := func() {
		if err := self.Signal(os.Interrupt); err != nil {
			t.Skipf("no interrupts here: %v", err)
		}
	}
	const patience = 10 * time.Second
	for _, taken := range []bool{true, true, false} {
		take.Store(taken)
		if ctx.Err() != nil {
			t.Fatal("an interrupt that was taken ended the context")
		}
		send()
		select {
		case <-seen:
		case <-time.After(patience):
			t.Fatal("the interrupt was not seen")
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("an interrupt that was not taken did not end the context")
	}
	// The same signal to the program's group, too, does not kill it.
	send()
	select {
	case <-seen:
	case <-time.After(patience):
		t.Fatal("the second interrupt was not seen")
	}
	time.Sleep(10 * time.Millisecond)
	restore()
	OnInterrupt(context.Background(), func() bool { t.Error("without Notify"); return true })()
}
