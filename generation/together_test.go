package generation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/datasets"
	"glimpse/generation"
)

// together runs a job as so many processes of one command would, and returns what they said.
func together(ctx context.Context, n int, job func() *generation.Job) (log string, err error) {
	errs, said := make([]error, n), make([]bytes.Buffer, n)
	var wg sync.WaitGroup
	for i := range n {
		s := job()
		wg.Go(func() { errs[i] = s.Run(ctx, &said[i]) })
	}
	wg.Wait()
	for i := range said {
		log += said[i].String()
	}
	return log, errors.Join(errs...)
}

// drawn is a job over synthetic prompts, whose responses are drawn and of different lengths.
func drawn(out string, samples int) *generation.Job {
	s := generation.DefaultJob()
	s.Samples, s.SamplesGiven, s.Tokens, s.MaxNew, s.Batch, s.Out = samples, true, 64, 12, 3, out
	s.Temperature = new(0.9)
	return s
}

func file(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Any number of processes make the bytes of one: of one file, of shards, of records some of which are bad
// and whose responses the recipe cuts, of fewer prompts than processes; and nothing else is left.
func TestTogetherMakesTheBytesOfOneProcess(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records.jsonl")
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, `{"id": "p%d", "prompt_ids": [%s%d]}`+"\n", i, strings.Repeat("11, 12, 13, ", 1+i%7), 20+i)
		if i == 7 {
			fmt.Fprintln(&lines, `{"id": "bad", "prompt_ids": [11, 99999999]}`)
		}
	}
	if err := os.WriteFile(records, []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	shards := []string{datasets.ShardName(0, 3), datasets.ShardName(1, 3), datasets.ShardName(2, 3)}
	for _, c := range []struct {
		name string
		job  func(out string) *generation.Job
		said string
	}{
		{"one file", func(out string) *generation.Job { return drawn(out, 50) }, "50 samples"},
		{"fewer prompts than processes", func(out string) *generation.Job { return drawn(out, 2) }, "2 samples"},
		{"shards", func(out string) *generation.Job {
			s := drawn(out, 40)
			s.Shards = 3
			return s
		}, "shard 2 of 3: 13 samples"},
		{"records", func(out string) *generation.Job {
			s := drawn(out, 0)
			s.Prompts, s.SamplesGiven, s.Recipe = records, false, "judgeq"
			return s
		}, "1 bad record left out"},
		{"answers of the source", func(out string) *generation.Job {
			s := drawn(out, 0)
			s.Prompts, s.SamplesGiven, s.Recipe, s.Responses = records, false, "judgeq", "source"
			return s
		}, "20 samples"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			names := []string{""}
			if c.name == "shards" {
				names = shards
			}
			for _, n := range []int{1, 2, 4} {
				out := filepath.Join(dir, fmt.Sprint(n))
				log, err := together(t.Context(), n, func() *generation.Job {
					s := c.job(out)
					s.Resume = n > 1 && s.Shards == 0 // of one that comes late
					return s
				})
				if err != nil || !strings.Contains(log, c.said) {
					t.Fatalf("%d processes: %v, said %q, want %q", n, err, log, c.said)
				}
				for _, name := range names {
					if file(t, filepath.Join(out, name)) != file(t, filepath.Join(dir, "1", name)) {
						t.Errorf("%d processes made another file %s than one", n, name)
					}
				}
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
				t.Errorf("left: %v (%v)", entries, err)
			}
		})
	}
}

// Processes that are stopped keep what is finished, and another number of them goes on to the same bytes; one with other settings is refused.
func TestStoppedTogether(t *testing.T) {
	dir := t.TempDir()
	whole, cut := filepath.Join(dir, "whole.jsonl"), filepath.Join(dir, "cut.jsonl")
	if err := drawn(whole, 200).Run(t.Context(), &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	job := func() *generation.Job {
		s := drawn(cut, 200)
		s.Resume = true
		return s
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if entries, _ := os.ReadDir(filepath.Join(dir, ".cut.jsonl.work", "results")); len(entries) > 3 {
				stop()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := together(ctx, 2, job); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the same command with --resume goes on") {
		t.Fatalf("stopped: %v", err)
	}
	if _, err := together(t.Context(), 1, func() *generation.Job {
		s := job()
		s.SamplingSeed = 9
		return s
	}); err == nil || !strings.Contains(err.Error(), "other settings: Seed: got 1, want 9") {
		t.Errorf("another seed: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".cut.jsonl*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("%v: want what the stopped run has left", err)
	}
	aside := filepath.Join(t.TempDir(), "aside")
	for _, path := range left {
		if err := os.CopyFS(filepath.Join(aside, strings.Replace(filepath.Base(path), ".cut", ".anew", 1)), os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
	}
	anew := drawn(filepath.Join(aside, "anew.jsonl"), 200)
	anew.SamplingSeed, anew.Files.Replace = 9, true
	if err := anew.Run(t.Context(), &bytes.Buffer{}); err != nil {
		t.Errorf("another seed in its place: %v", err)
	}
	if _, err := os.Stat(anew.Out); err != nil {
		t.Errorf("another seed in its place: %v", err)
	}
	if _, err := together(t.Context(), 1, func() *generation.Job {
		s := job()
		s.Resume = false
		return s
	}); err == nil || !strings.Contains(err.Error(), "go on with --resume, or begin again with --replace") {
		t.Errorf("begun again unasked: %v", err)
	}
	if _, err := together(t.Context(), 3, job); err != nil {
		t.Fatal(err)
	}
	if file(t, cut) != file(t, whole) {
		t.Error("processes that were stopped made another file than one that was not")
	}
}

// A folder of shards has one setting, on a disk and in a bucket; and parts of a shard that an earlier version has stored in a
// bucket are gone on with.
func TestShardsOfABucket(t *testing.T) {
	local := t.TempDir()
	job := func(out string, s3 objectstore.Settings) *generation.Job {
		s := drawn(out, 40)
		s.Shards, s.S3 = 2, s3
		return s
	}
	if err := job(local, objectstore.Settings{}).Run(t.Context(), &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	other := job(local, objectstore.Settings{})
	other.SamplingSeed = 7
	if err := other.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("other settings in a folder: %v", err)
	}
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		out, settings := "s3://"+storetest.Bucket+"/pairs", objectstore.Settings{Endpoint: s.URL}
		store, folder, err := objectstore.Open(t.Context(), out, settings)
		if err != nil {
			t.Fatal(err)
		}
		name := datasets.ShardName(0, 2)
		text := file(t, filepath.Join(local, name))
		ends := strings.SplitAfter(text, "\n")
		first, second := strings.Join(ends[:5], ""), strings.Join(ends[5:8], "")
		for key, data := range map[string]string{
			"part-000000000000": first, fmt.Sprintf("part-%012d", len(first)): second, "part-000009999999": "of another owner", "claim-000001": "{}",
		} {
			if err := store.Put(t.Context(), folder+"/.work/"+name+"/"+key, strings.NewReader(data), objectstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		log, err := together(t.Context(), 2, func() *generation.Job { return job(out, settings) })
		if err != nil || !strings.Contains(log, "shard 0 of 2 goes on after 7 samples") {
			t.Fatalf("%v: %q", err, log)
		}
		for i := range 2 {
			name := datasets.ShardName(i, 2)
			got, err := objectstore.Get(t.Context(), store, folder+"/"+name, 1<<20)
			if err != nil || string(got) != file(t, filepath.Join(local, name)) {
				t.Errorf("%s: %d bytes, %v: others than in a folder", name, len(got), err)
			}
			for _, below := range []string{"", "/claims", "/results"} {
				if left, err := store.List(t.Context(), folder+"/.work/"+name+below); err != nil || len(left) != 0 {
					t.Errorf("left: %v (%v)", left, err)
				}
			}
		}
		other := job(out, settings)
		other.SamplingSeed = 7
		if err := other.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "other settings") {
			t.Errorf("other settings in a bucket: %v", err)
		}
	})
}
