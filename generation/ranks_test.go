package generation_test

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

	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/internal/collective"
)

// onRanks runs a job on every group, as processes with the same command line would, and returns their errors
// and what rank 0 said.
func onRanks(ctx context.Context, groups []collective.Group, job func() *generation.Job) (errs []error, log string) {
	errs = make([]error, len(groups))
	var said bytes.Buffer
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			s := job()
			s.Ranks = g
			var w io.Writer = io.Discard
			if i == 0 {
				w = &said
			}
			if errs[i] = s.Run(ctx, w); errs[i] != nil {
				g.Fail(errs[i])
			}
		})
	}
	wg.Wait()
	return errs, said.String()
}

// drawn is a job over synthetic prompts, whose responses are drawn and of different lengths.
func drawn(out string, samples int) func() *generation.Job {
	return func() *generation.Job {
		s := generation.DefaultJob()
		s.Samples, s.SamplesGiven, s.Tokens, s.MaxNew, s.Batch, s.Out = samples, true, 64, 12, 3, out
		s.Temperature = new(0.9)
		return s
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Any number of ranks makes the bytes of one process: of one file, of shards, of records of which some are bad
// and whose responses the recipe cuts, and of fewer prompts than ranks.
func TestRanksMakeTheBytesOfOneProcess(t *testing.T) {
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
	for _, c := range []struct {
		name string
		job  func(out string) *generation.Job
		said string
	}{
		{"one file", func(out string) *generation.Job { return drawn(out, 30)() }, "30 samples"},
		{"fewer prompts than ranks", func(out string) *generation.Job { return drawn(out, 2)() }, "2 samples"},
		{"shards", func(out string) *generation.Job {
			s := drawn(out, 14)()
			s.Shards = 3
			return s
		}, "shard 2 of 3"},
		{"records", func(out string) *generation.Job {
			s := drawn(out, 0)()
			s.Prompts, s.SamplesGiven, s.Recipe = records, false, "judgeq"
			return s
		}, "1 bad record left out"},
		{"answers of the source", func(out string) *generation.Job {
			s := drawn(out, 0)()
			s.Prompts, s.SamplesGiven, s.Recipe, s.Responses = records, false, "judgeq", "source"
			return s
		}, "20 samples"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, n := range []int{1, 2, 4} {
				out := filepath.Join(dir, fmt.Sprint("ranks", n))
				errs, log := onRanks(t.Context(), collective.InProcess(n), func() *generation.Job { return c.job(out) })
				if err := errors.Join(errs...); err != nil || !strings.Contains(log, c.said) {
					t.Fatalf("%d ranks: %v, said %q, want %q", n, err, log, c.said)
				}
				names := []string{""}
				if c.name == "shards" {
					names = []string{datasets.ShardName(0, 3), datasets.ShardName(1, 3), datasets.ShardName(2, 3)}
				}
				for _, name := range names {
					if file(t, filepath.Join(out, name)) != file(t, filepath.Join(dir, "ranks1", name)) {
						t.Errorf("%d ranks made another file %s than one process", n, name)
					}
				}
			}
		})
	}
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

// A rank that dies, at any moment, ends the run on all ranks, with its number; what is finished is kept, and another
// number of ranks goes on to the same bytes.
func TestRankThatDies(t *testing.T) {
	dir := t.TempDir()
	whole, cut := filepath.Join(dir, "whole.jsonl"), filepath.Join(dir, "cut.jsonl")
	if errs, _ := onRanks(t.Context(), collective.InProcess(1), drawn(whole, 200)); errs[0] != nil {
		t.Fatal(errs[0])
	}
	keeps := 0
	for i, after := range []int64{3, 12, 40} {
		groups := collective.InProcess(3)
		d := &dying{Group: groups[1+i%2]}
		d.left.Store(after)
		groups[1+i%2] = d
		errs, _ := onRanks(t.Context(), groups, func() *generation.Job {
			s := drawn(cut, 200)()
			s.Resume = true
			return s
		})
		for rank, err := range errs {
			var failure *collective.Failure
			if !errors.As(err, &failure) || failure.Rank != 1+i%2 || failure.Reason != "killed" {
				t.Fatalf("rank %d: %v, want the failure of rank %d", rank, err, 1+i%2)
			}
		}
		if strings.Contains(errs[0].Error(), "finished samples of "+cut+" are kept, and the same command with --resume goes on") {
			keeps++
		}
	}
	if keeps == 0 {
		t.Error("nothing was kept of three runs")
	}
	errs, log := onRanks(t.Context(), collective.InProcess(4), func() *generation.Job {
		s := drawn(cut, 200)()
		s.Resume = true
		return s
	})
	if err := errors.Join(errs...); err != nil || !strings.Contains(log, "goes on after") {
		t.Fatalf("%v, said %q", err, log)
	}
	if file(t, cut) != file(t, whole) {
		t.Error("ranks of which some died made another file than one process")
	}
}

// A signal stops all ranks, wherever it arrives, and what is finished is kept.
func TestSignalStopsRanks(t *testing.T) {
	out := filepath.Join(t.TempDir(), "pairs.jsonl")
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if data, _ := os.ReadFile(datasets.PartialOf(out)); bytes.Count(data, []byte("\n")) > 3 {
				stop()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	errs, _ := onRanks(ctx, collective.InProcess(2), drawn(out, 100000))
	if !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
		t.Errorf("errors %v, want cancellations", errs)
	}
	if !strings.Contains(errs[0].Error(), "the same command with --resume goes on") {
		t.Errorf("rank 0 says %v", errs[0])
	}
}

// What ends one process ends all ranks, and ranks of other settings are refused.
func TestRanksRefuse(t *testing.T) {
	dir := t.TempDir()
	records := filepath.Join(dir, "records.jsonl")
	if err := os.WriteFile(records, []byte("{\"id\": \"a\", \"prompt_ids\": [11, 12]}\n{\"id\": \"b\", \"prompt_ids\": []}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	strict := func() *generation.Job {
		s := drawn(filepath.Join(dir, "strict.jsonl"), 0)()
		s.Prompts, s.SamplesGiven, s.Strict, s.Files.Replace = records, false, true, true
		return s
	}
	alone, _ := onRanks(t.Context(), collective.InProcess(1), strict)
	errs, _ := onRanks(t.Context(), collective.InProcess(3), strict)
	if alone[0] == nil || errs[0] == nil || errs[1] == nil || !strings.Contains(errs[0].Error(), "records.jsonl") {
		t.Errorf("--strict: one process: %v; ranks: %v", alone[0], errs)
	}
	var number atomic.Int64
	errs, _ = onRanks(t.Context(), collective.InProcess(2), func() *generation.Job {
		s := drawn(filepath.Join(dir, "other.jsonl"), 4)()
		s.SamplingSeed = uint64(number.Add(1))
		return s
	})
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), "rank 1 does not have the run of rank 0") {
		t.Errorf("ranks with two seeds: %v", err)
	}
}
