package runs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/eviction"
	"glimpse/internal/tempdir"
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

// TestStoredShardGoesOn: what a worker leaves of a shard in a bucket is where the next one
// goes on, and nobody works on a shard that another has.
func TestStoredShardGoesOn(t *testing.T) {
	ctx := context.Background()
	store := objectstore.Local(t.TempDir())
	open := func() *stored {
		dir, err := tempdir.New("", "glimpse-eval-")
		if err != nil {
			t.Fatal(err)
		}
		s := &stored{output: output{store, "run"}, dir: dir, save: time.Hour}
		t.Cleanup(s.close)
		return s
	}
	first, second := open(), open()
	dir, _, done, err := first.take(ctx, "shard-00000-of-00001")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := second.take(ctx, "shard-00000-of-00001"); !errors.Is(err, errTaken) {
		t.Fatalf("a shard that another has: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, partialFile), []byte("what there is\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
	dir, _, done, err = second.take(ctx, "shard-00000-of-00001")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, partialFile); got != "what there is\n" {
		t.Errorf("goes on from %q", got)
	}
	if is, err := second.finished(ctx, "shard-00000-of-00001"); is || err != nil {
		t.Errorf("finished: %v, %v", is, err)
	}
	for _, name := range []string{ConfigFile, EnvironmentFile, TimingsFile, PredictionsFile, MetricsFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
	if is, err := first.finished(ctx, "shard-00000-of-00001"); !is || err != nil {
		t.Errorf("finished: %v, %v", is, err)
	}
	brought, err := first.bring(ctx, "shard-00000-of-00001")
	if err != nil || read(t, brought, PredictionsFile) != PredictionsFile {
		t.Errorf("brought %q: %v", brought, err)
	}
	if _, err := store.Stat(ctx, "run/shard-00000-of-00001/"+partialFile); !errors.Is(err, objectstore.ErrNotExist) {
		t.Errorf("the unfinished predictions of a finished shard: %v", err)
	}
}
