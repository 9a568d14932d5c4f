//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/datasets"
)

// TestShardsInABucket: two workers at once fill a bucket with the bytes of a local
// folder, also after a kill; the trainer reads them from there, verified.
func TestShardsInABucket(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		dir := t.TempDir()
		t.Setenv("GLIMPSE_CACHE", filepath.Join(dir, "cache"))
		t.Setenv("AWS_REGION", "us-east-1")
		args := []string{"generate", "--samples", "36", "--tokens", "64", "--max-new", "12", "--shards", "3", "--threads", "1"}
		mustExecute(t, append(args, "--out", filepath.Join(dir, "local"))...)
		want := files(t, filepath.Join(dir, "local"))
		const bucket = "s3://test/pairs"
		args = append(args, "--out", bucket, "--s3-endpoint", s.URL)

		work := "pairs/.work/" + datasets.ShardName(0, 3)
		claim := work + "/claims/00000000/claim-000001"
		killed := start(t, args...)
		for end := time.Now().Add(time.Minute); s.Count("PUT "+claim) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no claim")
			}
		}
		time.Sleep(20 * time.Millisecond)
		killed.Process.Kill()
		if killed.finish() != -1 {
			t.Fatal("it was not killed")
		}
		store, folder, err := objectstore.Open(t.Context(), bucket, objectstore.Settings{Endpoint: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), claim); err == nil { // it was killed in the first shard
			s.Age(t, claim, 4*time.Minute)
		} else if !errors.Is(err, objectstore.ErrNotExist) {
			t.Fatal(err)
		}
		one, two := start(t, args...), start(t, args...)
		if one.finish() != 0 || two.finish() != 0 {
			t.Fatalf("workers failed:\n%s\n%s", one.output.String(), two.output.String())
		}
		mustExecute(t, args...) // whichever shard a worker left to another that it took for alive
		list, err := store.List(t.Context(), folder)
		if err != nil || len(list) != 3 {
			t.Fatalf("%d objects (%v), want 3 shards:\n%s\n%s", len(list), err, one.output.String(), two.output.String())
		}
		for _, i := range list {
			name := strings.TrimPrefix(i.Key, "pairs/")
			got, err := objectstore.Get(t.Context(), store, i.Key, 1<<20)
			if err != nil || want[name] == "" || string(got) != want[name] {
				t.Errorf("%s: error %v, other bytes than in a folder", name, err)
			}
		}
		s.Disturb(nil)
		if _, log := mustExecute(t, args...); strings.Count(log, "is finished already") != 3 || s.Count("PUT ") != 0 {
			t.Errorf("%d writes, log %q: want three shards to be finished already", s.Count("PUT "), log)
		}

		training := []string{"judgeq", "--steps", "1", "--batch", "2", "--rows", "2", "--validate", "0", "--s3-endpoint", s.URL}
		mustExecute(t, append(training, "--data", filepath.Join(dir, "local"), "--out", filepath.Join(dir, "a"))...)
		for name, data := range map[string]string{"folder": bucket, "object": bucket + "/" + datasets.ShardName(0, 3)} {
			s.Disturb(nil)
			mustExecute(t, append(training, "--data", data, "--out", filepath.Join(dir, name))...)
			if s.Count("GET pairs/") == 0 {
				t.Errorf("%s: nothing was fetched", name)
			}
		}
		if a := files(t, filepath.Join(dir, "a"))["lookahead_embeddings.safetensors"]; a == "" || a != files(t, filepath.Join(dir, "folder"))["lookahead_embeddings.safetensors"] {
			t.Error("pairs of a bucket train another adapter than those of a folder")
		}
		s.Disturb(nil)
		out, _ := mustExecute(t, "plan", "--preset", "judgeq", "--data", bucket, "--s3-endpoint", s.URL)
		if !strings.Contains(out, "prompts of up to 64") || s.Count("GET pairs/pairs-") != 0 {
			t.Errorf("plan %q, %d shards fetched again", out, s.Count("GET pairs/pairs-"))
		}
		if err := os.RemoveAll(filepath.Join(dir, "cache")); err != nil {
			t.Fatal(err)
		}
		s.Alter(t, "pairs/"+datasets.ShardName(1, 3), 700)
		if _, _, err := execute(t, t.Context(), append(training, "--data", bucket, "--out", filepath.Join(dir, "b"))...); !errors.Is(err, objectstore.ErrDamaged) {
			t.Errorf("an altered shard: error %v, want ErrDamaged", err)
		}
		if _, _, err := execute(t, t.Context(), append(training, "--data", "s3://test/nothing", "--out", filepath.Join(dir, "b"))...); !errors.Is(err, objectstore.ErrNotExist) || !strings.Contains(err.Error(), "s3://test/nothing: got a name with no .jsonl file directly below it") {
			t.Errorf("no shards: error %v", err)
		}
	})
}
