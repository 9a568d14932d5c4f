package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/collective"
	"glimpse/model/builtin"
	"glimpse/model/modeltest"
)

// onRanks runs a job as processes with the same command line would: rank 0 with an output, the others
// as its helpers. It returns their errors.
func onRanks(ctx context.Context, groups []collective.Group, j *Job) (out *Outcome, errs []error) {
	errs = make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			if i == 0 {
				j.Ranks = g
				if out, errs[0] = j.Run(ctx, io.Discard); errs[0] == nil {
					errs[0] = Dismiss(ctx, g)
				}
			} else {
				errs[i] = Help(ctx, g)
			}
			if errs[i] != nil {
				g.Fail(errs[i])
			}
		})
	}
	wg.Wait()
	return out, errs
}

// uneven is a job over samples of different lengths, one of which fails, and synthetic ones.
func uneven(t *testing.T, out string) *Job {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	var b strings.Builder
	for i := range 9 {
		fmt.Fprintf(&b, `{"id": "p%d", "prompt_ids": [%s12]}`+"\n", i, strings.Repeat("11, ", 20+30*(i%4)))
		if i == 4 {
			fmt.Fprintln(&b, `{"id": "bad", "prompt_ids": [99999999]}`)
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	j := small(out)
	j.Tasks = []Task{{Task: "data", Shared: Shared{Data: path, Samples: 10}}, {Task: "section"}}
	j.MaxNew, j.Inspect = 8, 2
	return j
}

func sameFiles(t *testing.T, what, dir, whole string) {
	t.Helper()
	for _, name := range []string{PredictionsFile, MetricsFile, KeptFile, EnvironmentFile} {
		if read(t, dir, name) != read(t, whole, name) {
			t.Errorf("%s: %s differs from that of one process", what, name)
		}
	}
}

// Any number of ranks comes to the bytes of one process: in a folder, in shards, and with fewer prompts than
// ranks; and a second job on the same ranks does, too.
func TestRanksComeToTheBytesOfOneProcess(t *testing.T) {
	whole := t.TempDir()
	first := uneven(t, whole)
	want, err := first.Run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want.Failed != 1 || !strings.Contains(want.First, "sample bad") {
		t.Fatalf("%d predictions failed, %s: want that of the bad sample", want.Failed, want.First)
	}
	ranks := []int{2, 4}
	if testing.Short() {
		ranks = ranks[1:]
	}
	for _, n := range ranks {
		for _, shards := range []int{0, 3} {
			j := *first
			j.Out, j.Shards, j.model = t.TempDir(), shards, nil
			got, errs := onRanks(t.Context(), collective.InProcess(n), &j)
			what := fmt.Sprintf("%d ranks, %d shards", n, shards)
			if err := errors.Join(errs...); err != nil || got == nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got.Samples != want.Samples || got.Failed != want.Failed || got.First != want.First || shards == 0 && got.Caches != want.Caches {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
			sameFiles(t, what, j.Out, whole)
		}
	}
	few := t.TempDir()
	j := *first
	j.Tasks, j.Samples, j.Out, j.model = []Task{{Task: "section"}}, 1, few, nil
	if _, err := j.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	j.Out, j.model = t.TempDir(), nil
	if _, errs := onRanks(t.Context(), collective.InProcess(3), &j); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	sameFiles(t, "one prompt on 3 ranks", j.Out, few)
}

// dying is a rank that ends after so many messages, as one that is killed.
type dying struct {
	collective.Group
	left atomic.Int64
}

func (d *dying) Send(ctx context.Context, to int, tag collective.Tag, b []byte) error {
	if d.left.Add(-1) < 0 {
		d.Fail(errors.New("killed"))
	}
	return d.Group.Send(ctx, to, tag, b)
}

// A rank that dies ends the run on all, with its number; what was measured stays, and another number of ranks goes on
// to the same bytes.
func TestRankThatDies(t *testing.T) {
	whole, dir := t.TempDir(), t.TempDir()
	first := uneven(t, whole)
	if _, err := first.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	j := *first
	j.Out, j.Resume = dir, true
	for i, after := range []int64{4, 4} {
		j.model = nil
		groups := collective.InProcess(3)
		d := &dying{Group: groups[2-i]}
		d.left.Store(after)
		groups[2-i] = d
		_, errs := onRanks(t.Context(), groups, &j)
		for rank, err := range errs {
			var failure *collective.Failure
			if !errors.As(err, &failure) || failure.Rank != 2-i {
				t.Fatalf("rank %d: %v, want the failure of rank %d", rank, err, 2-i)
			}
		}
		_, none := os.Stat(filepath.Join(dir, partialFile)) // it may die before anything is measured
		if says := strings.Contains(errs[0].Error(), "what was measured is in "+dir+", and the same command with --resume goes on"); says != (none == nil) {
			t.Errorf("rank 0 says %v; predictions: %v", errs[0], none)
		}
	}
	j.model = nil
	if _, errs := onRanks(t.Context(), collective.InProcess(4), &j); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	sameFiles(t, "ranks of which some died", dir, whole)
}

// A signal stops all ranks, and what was measured stays.
func TestSignalStopsRanks(t *testing.T) {
	j := small(t.TempDir())
	j.Tasks, j.Samples = []Task{{Task: "section"}}, 5000
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if data, _ := os.ReadFile(filepath.Join(j.Out, partialFile)); bytes.Count(data, []byte("\n")) > 3 {
				stop()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, errs := onRanks(ctx, collective.InProcess(2), j)
	if !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) || !strings.Contains(errs[0].Error(), "the same command with --resume goes on") {
		t.Errorf("after a signal: %v", errs)
	}
}

// What ends one process ends all ranks, as a sample that fails under --strict; and what only rank 0 can read is refused.
func TestRanksRefuse(t *testing.T) {
	j := uneven(t, t.TempDir())
	j.Strict = true
	_, errs := onRanks(t.Context(), collective.InProcess(3), j)
	if errs[0] == nil || errs[1] == nil || errs[2] == nil || !strings.Contains(errs[0].Error(), "task prompts: sample bad: ") {
		t.Errorf("--strict: %v", errs)
	}
	standard := small("")
	standard.Tasks, standard.Data = []Task{{Task: "data"}}, "-"
	_, errs = onRanks(t.Context(), collective.InProcess(2), standard)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "standard input is rank 0's alone") {
		t.Errorf("data from standard input: %v", errs)
	}
}

// TestRanksOfOtherJobs: ranks whose command lines differ in what answers depend on are refused, with the setting, its two values and
// the rank.
func TestRanksOfOtherJobs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(j *Job)
		want   string // "": taken
	}{
		"budget":      {func(j *Job) { j.Budgets[0] = eviction.Pairs(999) }, "budgets.0: got 999, want 16"},
		"more":        {func(j *Job) { j.Budgets = append(j.Budgets, j.Budgets[0]) }, "budgets.1: got 16, want none"},
		"seed":        {func(j *Job) { j.Seed = 1<<64 - 1 }, "seed: got 18446744073709551615, want 1"},
		"policy":      {func(j *Job) { j.Policies = Names{"full,tova"} }, "policies.0: got full,tova, want full,snapkv"},
		"option":      {func(j *Job) { j.Set = []string{"snapkv.window=4"} }, "set.0: got snapkv.window=4, want none"},
		"model":       {func(j *Job) { j.Models = []Subject{{Model: "other"}} }, "models.0.model: got other, want none"},
		"samples":     {func(j *Job) { j.Samples = 7 }, "samples: got 7, want 2"},
		"strict":      {func(j *Job) { j.Strict = true }, "strict: got true, want false"},
		"resume":      {func(j *Job) { j.Resume = true }, "resume: got true, want false"},
		"concurrency": {func(j *Job) { j.Concurrent = 3 }, ""},
		"output":      {func(j *Job) { j.Out = "elsewhere" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			groups := collective.InProcess(3)
			var wg sync.WaitGroup
			errs := make([]error, len(groups))
			for i, g := range groups {
				j := small("")
				j.Seed, j.Samples, j.Policies, j.Budgets = 1, 2, Names{"full,snapkv"}, []eviction.Budget{eviction.Pairs(16)}
				if i == 2 {
					c.change(j)
				}
				wg.Go(func() { errs[i] = j.Join(t.Context(), g) })
			}
			wg.Wait()
			for i, err := range errs {
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), "eval: rank 2 does not have the run of rank 0: "+c.want) {
					t.Errorf("rank %d: %v, want %q", i, err, c.want)
				}
			}
		})
	}
}

// TestRanksOfOtherWeights: other weights on a rank are told as such, and not as the adapters that they have or lack.
func TestRanksOfOtherWeights(t *testing.T) {
	groups := collective.InProcess(2)
	var wg sync.WaitGroup
	errs := make([]error, len(groups))
	for i, g := range groups {
		wg.Go(func() {
			o := &engine.Options{Device: "cpu", CacheDType: "float32", Policies: "judgeq"} // the built-in one, with its adapter
			if i == 1 {
				folder := filepath.Join(t.TempDir(), builtin.Name)
				if errs[i] = os.CopyFS(folder, modeltest.WithFiles(t, nil)); errs[i] != nil {
					return
				}
				o.Model, o.Policies = folder, ""
			}
			m, err := engine.Open(t.Context(), o, io.Discard)
			if err != nil {
				errs[i] = err
				return
			}
			defer m.Close()
			errs[i] = (&Job{Ranks: g}).checkSameJob(t.Context(), m, nil)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 1 does not have the run of rank 0: SHA-256 of the weights: got ") || strings.Contains(err.Error(), "judgeq") || strings.Contains(err.Error(), "{") {
			t.Errorf("rank %d: %v, want the weights", i, err)
		}
	}
}
