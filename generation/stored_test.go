package generation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
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

func storedIn(t *testing.T, s *storetest.Server, folder string) generation.Stored {
	t.Helper()
	store, key, err := objectstore.Open(t.Context(), "s3://"+storetest.Bucket+"/"+folder, objectstore.Settings{Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return generation.Stored{Store: store, Folder: key, Claims: objectstore.Claims{Beat: time.Hour}, Save: time.Hour}
}

func header(shard, shards int) datasets.PairHeader {
	return datasets.PairHeader{
		Model: "m", WeightsSHA256: strings.Repeat("0", 64), Shard: shard, Shards: shards,
		Sampling: datasets.Sampling{TopP: 1, MaxNewTokens: 4},
	}
}

// writePairs writes pairs of a shard; size is the number of ids of each.
func writePairs(t *testing.T, w interface{ Write(datasets.Pair) error }, shard, from, to, size int) {
	t.Helper()
	for i := from; i < to; i++ {
		ids := make([]int32, size)
		for j := range ids {
			ids[j] = int32(shard*1000 + i + j)
		}
		if err := w.Write(datasets.Pair{ID: fmt.Sprintf("%d-%d", shard, i), PromptIDs: ids, ResponseIDs: ids[:1]}); err != nil {
			t.Fatal(err)
		}
	}
}

// undisturbed are the bytes of a shard made without a stop, in a local folder.
func undisturbed(t *testing.T, shard, shards, pairs, size int) []byte {
	t.Helper()
	dir := t.TempDir()
	w, err := datasets.OpenShard(dir, header(shard, shards))
	if err != nil {
		t.Fatal(err)
	}
	writePairs(t, w, shard, 0, pairs, size)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	data, err := objectstore.Get(t.Context(), objectstore.Local(dir), datasets.ShardName(shard, shards), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// wantShards fails unless the folder holds exactly the shards, each as undisturbed.
func wantShards(t *testing.T, in generation.Stored, shards, pairs, size int) {
	t.Helper()
	list, err := in.Store.List(t.Context(), in.Folder)
	if err != nil || len(list) != shards {
		t.Fatalf("%d objects (%v), want %d shards", len(list), err, shards)
	}
	for i := range shards {
		name := datasets.ShardName(i, shards)
		got, err := objectstore.Get(t.Context(), in.Store, in.Folder+"/"+name, 1<<30)
		if err != nil || !bytes.Equal(got, undisturbed(t, i, shards, pairs, size)) {
			t.Errorf("shard %d: error %v, %d bytes: others than without a stop", i, err, len(got))
		}
		if left, err := in.Store.List(t.Context(), in.Folder+"/.work/"+name); err != nil || len(left) != 0 {
			t.Errorf("shard %d: %v left behind (%v)", i, left, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "glimpse-shard-*")); len(left) != 0 {
		t.Errorf("left on this machine: %v", left)
	}
}

// TestStoredShardsAreRacedFor: workers that race for all shards finish each exactly
// once.
func TestStoredShardsAreRacedFor(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		t.Setenv("TMPDIR", t.TempDir())
		const shards, workers, pairs = 6, 3, 5
		var mu sync.Mutex
		finished := make(map[int]int)
		var wg sync.WaitGroup
		for range workers {
			in := storedIn(t, s, "pairs")
			wg.Go(func() {
				for done := 0; done < shards; {
					done = 0
					for i := range shards {
						w, err := in.Open(t.Context(), header(i, shards))
						if errors.Is(err, datasets.ErrFinished) {
							done++
							continue
						}
						if errors.Is(err, objectstore.ErrClaimed) {
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						writePairs(t, w, i, 0, pairs, 3)
						if err := w.Commit(); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						finished[i]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for i := range shards {
			if finished[i] != 1 {
				t.Errorf("shard %d was finished %d times", i, finished[i])
			}
		}
		wantShards(t, storedIn(t, s, "pairs"), shards, pairs, 3)
		h := header(0, shards)
		h.Seed = 7
		if _, err := storedIn(t, s, "pairs").Open(t.Context(), h); err == nil || errors.Is(err, datasets.ErrFinished) || !strings.Contains(err.Error(), "other settings") {
			t.Errorf("a finished shard of other settings: error %v", err)
		}
	})
}

// TestStoredShardGoesOn: a shard whose worker was killed, stopped, or held up goes on
// after what it had sent, to the same bytes; a stale claim is taken over by exactly one.
func TestStoredShardGoesOn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		const pairs, size = 24, 300
		t.Setenv("TMPDIR", t.TempDir())
		in := storedIn(t, s, "pairs")
		work := "pairs/.work/" + datasets.ShardName(0, 1)
		open := func() *generation.StoredShard {
			t.Helper()
			w, err := in.Open(t.Context(), header(0, 1))
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		w := open()
		writePairs(t, w, 0, 0, 9, size)
		if err := w.SaveNow(); err != nil {
			t.Fatal(err)
		}
		writePairs(t, w, 0, 9, 11, size) // which are lost
		if _, err := in.Open(t.Context(), header(0, 1)); !errors.Is(err, objectstore.ErrClaimed) {
			t.Fatalf("a second worker: error %v, want ErrClaimed", err)
		}
		w.Kill()
		if _, err := in.Open(t.Context(), header(0, 1)); !errors.Is(err, objectstore.ErrClaimed) {
			t.Fatalf("right after the kill: error %v, want ErrClaimed", err)
		}
		s.Age(t, work+"/claim-000001", 4*time.Minute)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var taken []*generation.StoredShard
		for range 4 {
			in := storedIn(t, s, "pairs")
			wg.Go(func() {
				w, err := in.Open(t.Context(), header(0, 1))
				if err != nil {
					if !errors.Is(err, objectstore.ErrClaimed) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				taken = append(taken, w)
			})
		}
		wg.Wait()
		if len(taken) != 1 {
			t.Fatalf("%d took the stale claim over", len(taken))
		}
		w = taken[0]
		if w.Done != 9 || w.Last != "0-8" {
			t.Fatalf("goes on after %d pairs, the last %s: want the 9 that were sent", w.Done, w.Last)
		}
		writePairs(t, w, 0, 9, 14, size)
		s.Disturb(nil)
		w.Release() // stopped by its user: all is sent, and free at once
		if n := s.Count("PUT " + work + "/part-000000000000"); n != 0 {
			t.Errorf("the first part was sent again")
		}
		w = open()
		if w.Done != 14 {
			t.Fatalf("goes on after %d pairs, want 14", w.Done)
		}
		writePairs(t, w, 0, 14, 20, size)
		if err := w.SaveNow(); err != nil {
			t.Fatal(err)
		}
		w.Kill()
		// A part that was altered ends what is taken up.
		list, err := in.Store.List(t.Context(), work)
		if err != nil {
			t.Fatal(err)
		}
		last := list[len(list)-1].Key
		if !strings.HasPrefix(path.Base(last), "part-") || len(list) != 6 {
			t.Fatalf("%d objects, the last %s", len(list), last)
		}
		s.Alter(t, last, 100)
		s.Age(t, work+"/claim-000003", 4*time.Minute)
		held := open()
		if held.Done != 14 {
			t.Fatalf("goes on after %d pairs, want the 14 of the parts that are whole", held.Done)
		}
		writePairs(t, held, 0, held.Done, pairs, size)
		s.Age(t, work+"/claim-000004", 4*time.Minute) // held up at its very end
		w = open()
		if err := held.SaveNow(); !errors.Is(err, objectstore.ErrClaimLost) {
			t.Errorf("upload without the claim: error %v, want ErrClaimLost", err)
		}
		writePairs(t, w, 0, w.Done, pairs, size)
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := held.Commit(); !errors.Is(err, datasets.ErrFinished) {
			t.Errorf("commit without the claim: error %v, want ErrFinished", err)
		}
		w.Release()
		held.Release()
		t.Setenv("TMPDIR", t.TempDir()) // what was killed has left its files in the other
		s.Disturb(nil)
		if _, err := in.Open(t.Context(), header(0, 1)); !errors.Is(err, datasets.ErrFinished) {
			t.Errorf("a finished shard: error %v", err)
		}
		if n := s.Count("PUT "); n != 0 {
			t.Errorf("%d writes for a finished shard", n)
		}
		wantShards(t, in, 1, pairs, size)
	})
}

// TestStoredShardSavesItself: what is written reaches the bucket while work goes on,
// and a worker that loses its claim is stopped with the cause.
func TestStoredShardSavesItself(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		in := storedIn(t, s, "pairs")
		in.Save, in.Claims.Beat = 10*time.Millisecond, 10*time.Millisecond
		w, err := in.Open(t.Context(), header(0, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Release()
		part := in.Folder + "/.work/" + datasets.ShardName(0, 1) + "/part-"
		writePairs(t, w, 0, 0, 3, 3)
		for end := time.Now().Add(20 * time.Second); s.Count("PUT "+part) == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing was sent")
			}
		}
		// As another who has found it stale.
		if err := in.Store.Put(t.Context(), path.Dir(part)+"/claim-000002", strings.NewReader("{}"), objectstore.PutOptions{New: true}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.Context().Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the work goes on without the claim")
		}
		if cause := context.Cause(w.Context()); !errors.Is(cause, objectstore.ErrClaimLost) {
			t.Errorf("cause %v, want ErrClaimLost", cause)
		}
	})
}

// TestStoredShardInParts: much is sent in several parts, none of which is a multipart
// upload, that a kill could leave half done; the finished shard may be one.
func TestStoredShardInParts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		t.Setenv("TMPDIR", t.TempDir())
		const pairs, size = 13, 120_000 // 9 MB
		in := storedIn(t, s, "pairs")
		w, err := in.Open(t.Context(), header(0, 1))
		if err != nil {
			t.Fatal(err)
		}
		writePairs(t, w, 0, 0, pairs, size)
		s.Disturb(nil)
		w.Release()
		if parts, uploads := s.Count("PUT pairs/.work/"+datasets.ShardName(0, 1)+"/part-"), s.Count("POST "); parts != 3 || uploads != 0 {
			t.Errorf("%d parts and %d multipart uploads, want 3 and none", parts, uploads)
		}
		if w, err = in.Open(t.Context(), header(0, 1)); err != nil || w.Done != pairs {
			t.Fatalf("%v: %d pairs, want %d", err, w.Done, pairs)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		wantShards(t, in, 1, pairs, size)
	})
}

// TestStoredFolderHasOneSetting: a second worker with other settings is refused,
// whichever shard it takes.
func TestStoredFolderHasOneSetting(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		t.Setenv("TMPDIR", t.TempDir())
		in := storedIn(t, s, "settings")
		w, err := in.Open(t.Context(), header(0, 3))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Release()
		other, fewer := header(1, 3), header(0, 2)
		other.Data = "other prompts"
		for _, h := range []datasets.PairHeader{other, fewer} {
			if _, err := in.Open(t.Context(), h); err == nil || !strings.Contains(err.Error(), "other settings") {
				t.Errorf("%+v: error %v, want one that speaks of other settings", h, err)
			}
		}
		same, err := in.Open(t.Context(), header(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		same.Release()
	})
}
