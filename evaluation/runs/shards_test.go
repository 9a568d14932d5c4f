package runs

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/eviction"
)

// TestShardsAreTheRun: several workers on one folder, one of which is stopped on the way,
// come to the bytes of one run.
func TestShardsAreTheRun(t *testing.T) {
	ctx := context.Background()
	whole, dir := t.TempDir(), t.TempDir()
	if _, err := small(whole).Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	worker := func(ctx context.Context) (*Outcome, error) {
		j := small(dir)
		j.Shards = 3
		return j.Run(ctx, io.Discard)
	}
	stopped, stop := context.WithCancel(ctx)
	time.AfterFunc(20*time.Millisecond, stop)
	if _, err := worker(stopped); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	outcomes, errs := make([]*Outcome, 2), make([]error, 2)
	for i := range outcomes {
		wg.Go(func() { outcomes[i], errs[i] = worker(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if outcomes[0] == nil && outcomes[1] == nil {
		t.Fatal("nobody has joined the shards")
	}
	for _, name := range []string{PredictionsFile, MetricsFile, KeptFile} {
		if read(t, dir, name) != read(t, whole, name) {
			t.Errorf("%s differs from that of one run", name)
		}
	}
	other := small(dir)
	other.Shards, other.Budgets = 3, []eviction.Budget{eviction.Pairs(8)}
	if _, err := other.Run(ctx, io.Discard); err == nil || !strings.Contains(err.Error(), "budgets (was") {
		t.Errorf("a worker with other settings: error %v, want it refused", err)
	}
}
