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
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/evaluation"
	"glimpse/eviction"
)

// together runs a job as so many processes of one command would, and returns the outcome of the one that made the results.
func together(ctx context.Context, n int, job func() *Job) (out *Outcome, err error) {
	outs, errs := make([]*Outcome, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		j := job()
		wg.Go(func() { outs[i], errs[i] = j.Run(ctx, io.Discard) })
	}
	wg.Wait()
	made := 0
	for _, o := range outs {
		if o != nil {
			out, made = o, made+1
		}
	}
	if err = errors.Join(errs...); err == nil && made == 0 { // one that comes late may find them made
		err = errors.New("no process has made the results")
	}
	return out, err
}

// uneven is a job over synthetic samples, and over others of different lengths. One sample fails.
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

// Any number of processes come to the bytes of one: in a folder, in shards, in a bucket, and with fewer prompts than processes.
func TestTogetherIsTheRun(t *testing.T) {
	whole := t.TempDir()
	first := uneven(t, whole)
	want, err := first.Run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want.Failed != 1 || !strings.Contains(want.Failures[0].Error(), "sample bad") {
		t.Fatalf("%d predictions failed, %s: want that of the bad sample", want.Failed, want.Failures)
	}
	on := func(out string, change func(j *Job)) func() *Job {
		return func() *Job {
			j := *first
			j.Out, j.Resume = out, true
			if change != nil {
				change(&j)
			}
			return &j
		}
	}
	for n, shards := range map[int]int{2: 0, 4: 3} {
		out := t.TempDir()
		got, err := together(t.Context(), n, on(out, func(j *Job) { j.Resume, j.Shards = shards == 0, shards }))
		what := fmt.Sprintf("%d processes, %d shards", n, shards)
		if err != nil || got.Samples != want.Samples || got.Failed != want.Failed || fmt.Sprint(got.Failures) != fmt.Sprint(want.Failures) {
			t.Fatalf("%s: %v: %+v, want %+v", what, err, got, want)
		}
		sameFiles(t, what, out, whole)
		if entries, err := os.ReadDir(out); err != nil || len(entries) != 6 {
			t.Errorf("%s: the folder holds %v (%v), want the six files of a run", what, entries, err)
		}
	}
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		out := "s3://" + storetest.Bucket + "/run"
		settings := objectstore.Settings{Endpoint: s.URL}
		if _, err := together(t.Context(), 3, on(out, func(j *Job) { j.S3 = settings })); err != nil {
			t.Fatal(err)
		}
		local := t.TempDir()
		store, folder, err := objectstore.Open(t.Context(), out, settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{PredictionsFile, MetricsFile, KeptFile, EnvironmentFile} {
			if err := objectstore.Download(t.Context(), store, folder+"/"+name, filepath.Join(local, name)); err != nil {
				t.Fatal(err)
			}
		}
		sameFiles(t, "in a bucket", local, whole)
		for _, below := range []string{"results", "claims", "notes"} {
			if left, err := store.List(t.Context(), folder+"/.work/"+below); err != nil || len(left) != 0 {
				t.Errorf("%v are left (%v)", left, err)
			}
		}
	})
	few, shared := t.TempDir(), t.TempDir()
	one := func(j *Job) { j.Tasks, j.Samples = []Task{{Task: "section"}}, 1 }
	if _, err := on(few, one)().Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, err := together(t.Context(), 3, on(shared, one)); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "one prompt for 3 processes", shared, few)
}

// measuredIn is how many samples a folder has results of.
func measuredIn(dir string) int {
	entries, _ := os.ReadDir(filepath.Join(dir, workFolder, "results"))
	return len(entries)
}

// A process that is stopped leaves its samples to the others, and all that are stopped go on to the same bytes.
func TestStoppedTogether(t *testing.T) {
	whole, dir := t.TempDir(), t.TempDir()
	first := uneven(t, whole)
	if _, err := first.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	job := func() *Job {
		j := *first
		j.Out, j.Resume = dir, true
		return &j
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if measuredIn(dir) > 3 {
				stop()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := together(ctx, 2, job); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "what was measured is in "+dir+", and the same command with --resume goes on") {
		t.Fatalf("after a signal: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	go func() {
		time.Sleep(20 * time.Millisecond)
		stop()
	}()
	var log bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		job().Run(stopped, &log)
	}()
	if _, err := job().Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	<-ended
	sameFiles(t, "a process was stopped", dir, whole)
}

// Processes whose command lines differ in what answers depend on, or whose data are others, are refused, and name the setting or the file.
func TestOthersAreRefused(t *testing.T) {
	data := t.TempDir()
	prompts(t, data, "prompts.jsonl", "11")
	for name, c := range map[string]struct {
		change func(j *Job)
		want   string
	}{
		"budget": {func(j *Job) { j.Budgets[0] = eviction.Pairs(999) }, "budgets (was"},
		"seed":   {func(j *Job) { j.Seed = 1<<64 - 1 }, "seed (was 1, is"},
		"policy": {func(j *Job) { j.Policies = Names{"full,tova"} }, `policies (was ["full,snapkv"]`},
		"data":   {func(*Job) { prompts(t, data, "prompts.jsonl", "13") }, "the data have changed"},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			job := func() *Job {
				j := onData(t, data, out)
				j.Tasks, j.Samples = j.Tasks[:1], 3
				return j
			}
			ctx, stop := context.WithCancel(t.Context())
			first := job()
			first.Shards, first.Shard = 3, "0/3"
			if _, err := first.Run(ctx, io.Discard); err != nil {
				t.Fatal(err)
			}
			stop()
			other := job()
			other.Shards = 3
			c.change(other)
			if _, err := other.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			prompts(t, data, "prompts.jsonl", "11")
		})
	}
}

// TestEarlierVersionsGoOn: what an earlier version has left of a run goes on. That is a folder, or shards: one is finished, one
// was stopped, one is not begun.
func TestEarlierVersionsGoOn(t *testing.T) {
	whole := t.TempDir()
	if _, err := small(whole).Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	config, kept := read(t, whole, ConfigFile), read(t, whole, KeptFile)
	all, err := readFinished(filepath.Join(whole, PredictionsFile))
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir, name string, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, shards := range []int{0, 3} {
		out := t.TempDir()
		own := strings.Replace(config, whole, out, 1)
		if shards == 0 {
			write(out, ConfigFile, own)
			write(out, EnvironmentFile, read(t, whole, EnvironmentFile))
			write(out, partialFile, strings.Join(lines(t, whole)[:22], ""))
			write(out, KeptFile, kept)
		} else {
			write(out, settingsFile, own)
		}
		for i := range max(0, shards-1) {
			var b bytes.Buffer
			for _, p := range all {
				if p.Index%shards == i {
					if err := evaluation.WritePredictions(&b, []*evaluation.Prediction{p}); err != nil {
						t.Fatal(err)
					}
				}
			}
			dir := filepath.Join(out, shardName(i, shards))
			write(dir, ConfigFile, own)
			write(dir, EnvironmentFile, read(t, whole, EnvironmentFile))
			if i == 0 { // the first samples of the tasks
				write(dir, PredictionsFile, b.String())
				write(dir, MetricsFile, "{}")
				write(dir, KeptFile, kept)
			} else {
				write(dir, partialFile, b.String()[:b.Len()/2])
			}
		}
		before, err := Read(t.Context(), out, 0, objectstore.Settings{})
		if err != nil || before.Finished || len(before.Predictions) == 0 || len(before.Predictions) >= len(all) {
			t.Fatalf("%d shards: %v: %+v", shards, err, before)
		}
		j := small(out)
		j.Resume, j.Shards = shards == 0, shards
		got, err := j.Run(t.Context(), io.Discard)
		if err != nil || got.Prompts == 0 || got.Prompts > 9-len(before.Predictions)/5 {
			t.Fatalf("%d shards: %v: %+v, of %d predictions", shards, err, got, len(before.Predictions))
		}
		sameFiles(t, fmt.Sprintf("%d shards", shards), out, whole)
	}
}
