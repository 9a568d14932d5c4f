package objectstore_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// adapterRows are 6 MB of embeddings, so that they take several parts.
var adapterRows = 1000

// adapter is one that is recognised by its number.
func adapter(number int) *checkpoints.Adapter {
	a := &checkpoints.Adapter{
		Kind: "judgeq", Base: checkpoints.BaseModel{Name: "base", SHA256: strings.Repeat("ab", 32)},
		Embeddings: checkpoints.Matrix{Rows: adapterRows, Cols: 1500, Data: make([]float32, adapterRows*1500)},
		Loss:       "mse", PoolingKernel: 1, Metrics: map[string]float64{"number": float64(number)},
	}
	for i := range a.Embeddings.Data {
		a.Embeddings.Data[i] = float32(number)
	}
	return a
}

// filesOf is the adapter as it is published.
func filesOf(t *testing.T, a *checkpoints.Adapter) []checkpoints.AdapterFile {
	t.Helper()
	files, err := checkpoints.EncodeAdapter(a)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// number reads a published adapter: its number, or an error.
func number(t *testing.T, s objectstore.Store, folder string) (float64, error) {
	a, err := checkpoints.ReadAdapterFS(objectstore.FS(t.Context(), s, folder), ".")
	if err != nil {
		return 0, err
	}
	for _, v := range a.Embeddings.Data {
		if float64(v) != a.Metrics["number"] {
			t.Errorf("embeddings of adapter %v with the manifest of %v", v, a.Metrics["number"])
		}
	}
	return a.Metrics["number"], nil
}

// eachStore runs a test on local folders and on servers, which are nil for folders.
func eachStore(t *testing.T, f func(t *testing.T, s *storetest.Server, reopen func(t *testing.T) objectstore.Store)) {
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		f(t, nil, func(*testing.T) objectstore.Store { return objectstore.Local(dir) })
	})
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		f(t, s, func(t *testing.T) objectstore.Store { return open(t, s) })
	})
}

func TestPublish(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storetest.Server, reopen func(t *testing.T) objectstore.Store) {
		for i, want := range []bool{true, false} {
			created, err := objectstore.Publish(t.Context(), reopen(t), "a/b", filesOf(t, adapter(1)), nil)
			if err != nil || created != want {
				t.Fatalf("time %d: created %v, error %v", i+1, created, err)
			}
		}
		if _, err := objectstore.Publish(t.Context(), reopen(t), "a/b", filesOf(t, adapter(2)), nil); !errors.Is(err, objectstore.ErrExists) || !strings.Contains(err.Error(), "never replaced") {
			t.Errorf("another adapter of the same name: error %v", err)
		}
		if n, err := number(t, reopen(t), "a/b"); err != nil || n != 1 {
			t.Errorf("adapter %v, error %v; want 1", n, err)
		}
		if _, err := number(t, reopen(t), "a"); !errors.Is(err, checkpoints.ErrNotAdapter) {
			t.Errorf("a folder without an adapter: error %v", err)
		}
	})
}

// withoutLast is a store on which an export ends before its last file.
type withoutLast struct{ objectstore.Store }

var errKilled = errors.New("killed")

func (s withoutLast) Put(ctx context.Context, key string, src objectstore.Source, opt objectstore.PutOptions) error {
	if strings.HasSuffix(key, checkpoints.AdapterManifest) {
		return errKilled
	}
	return s.Store.Put(ctx, key, src, opt)
}

// TestPublishFinishes: an export that was killed shows nothing, is finished by the
// same export, and is in the way of another.
func TestPublishFinishes(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storetest.Server, reopen func(t *testing.T) objectstore.Store) {
		files := filesOf(t, adapter(1))
		if _, err := objectstore.Publish(t.Context(), withoutLast{reopen(t)}, "a", files, nil); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if _, err := number(t, reopen(t), "a"); !errors.Is(err, checkpoints.ErrNotAdapter) {
			t.Fatalf("half an adapter: error %v", err)
		}
		if _, err := objectstore.Publish(t.Context(), reopen(t), "a", filesOf(t, adapter(2)), nil); !errors.Is(err, objectstore.ErrUnfinished) {
			t.Errorf("another adapter: error %v, want ErrUnfinished", err)
		}
		if created, err := objectstore.Publish(t.Context(), reopen(t), "a", files, nil); err != nil || !created {
			t.Errorf("the same adapter: created %v, error %v", created, err)
		}
		if n, err := number(t, reopen(t), "a"); err != nil || n != 1 {
			t.Errorf("adapter %v, error %v; want 1", n, err)
		}
	})
}

// TestPublishRace: of several exporters of one name exactly one wins, and readers
// meanwhile see nothing or the whole adapter.
func TestPublishRace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *storetest.Server, reopen func(t *testing.T) objectstore.Store) {
		const exporters = 3
		rounds := 4
		if testing.Short() {
			rounds = 2
		}
		whole := 0
		for round := range rounds {
			folder := strings.Repeat("r", round+1)
			over := make(chan struct{})
			var readers, writers sync.WaitGroup
			store := reopen(t)
			readers.Go(func() {
				last := false
				for seen := -1.0; ; {
					select {
					case <-over: // the last read begins when all is written
						last = true
					default:
					}
					n, err := number(t, store, folder)
					switch {
					case err == nil && seen >= 0 && n != seen:
						t.Errorf("a reader saw adapter %v and then %v", seen, n)
					case err == nil:
						seen = n
						whole++
					case !errors.Is(err, checkpoints.ErrNotAdapter) && !errors.Is(err, fs.ErrNotExist):
						t.Errorf("a reader saw half an adapter: %v", err)
					}
					if last {
						return
					}
				}
			})
			results := make([]error, exporters)
			for i := range exporters {
				files, store := filesOf(t, adapter(i)), reopen(t)
				writers.Go(func() { _, results[i] = objectstore.Publish(t.Context(), store, folder, files, nil) })
			}
			writers.Wait()
			close(over)
			readers.Wait()
			winner := -1
			for i, err := range results {
				switch {
				case err == nil && winner >= 0:
					t.Errorf("exporters %d and %d both won", winner, i)
				case err == nil:
					winner = i
				case !errors.Is(err, objectstore.ErrExists) && !errors.Is(err, objectstore.ErrUnfinished):
					t.Errorf("a loser's error is %v", err)
				}
			}
			if n, err := number(t, reopen(t), folder); err != nil || winner < 0 || n != float64(winner) {
				t.Errorf("exporter %d won, the adapter is that of %v (error %v)", winner, n, err)
			}
			if s == nil {
				continue
			}
			for _, f := range filesOf(t, adapter(0)) {
				if n := uploads(t, s, folder+"/"+f.Name); n != 0 {
					t.Errorf("%d unfinished uploads of %s are left", n, f.Name)
				}
			}
		}
		if whole == 0 {
			t.Error("no reader ever saw an adapter")
		}
	})
}

// TestAlteredAdapter: whichever file of a published adapter is changed behind the
// server's back, loading it is an error that names the file.
func TestAlteredAdapter(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		for _, f := range filesOf(t, adapter(1)) {
			folder := "of-" + f.Name
			if _, err := objectstore.Publish(t.Context(), open(t, s), folder, filesOf(t, adapter(1)), nil); err != nil {
				t.Fatal(err)
			}
			s.Alter(t, folder+"/"+f.Name, len(f.Data)/2)
			if _, err := number(t, open(t, s), folder); err == nil || !strings.Contains(err.Error(), f.Name) {
				t.Errorf("%s altered: error %v", f.Name, err)
			}
		}
		for _, f := range filesOf(t, adapter(1))[:1] { // and by a writer who replaces a file in the regular way
			folder := "replaced"
			if _, err := objectstore.Publish(t.Context(), open(t, s), folder, filesOf(t, adapter(1)), nil); err != nil {
				t.Fatal(err)
			}
			put(t, open(t, s), folder+"/"+f.Name, filesOf(t, adapter(2))[0].Data, objectstore.PutOptions{})
			if _, err := number(t, open(t, s), folder); !errors.Is(err, checkpoints.ErrCorrupt) || !strings.Contains(err.Error(), "sha256") {
				t.Errorf("%s replaced: error %v", f.Name, err)
			}
		}
	})
}

// TestPublishThroughFaults: exports over a network that breaks again and again.
func TestPublishThroughFaults(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		n := 0
		s.Disturb(func(r *http.Request) storetest.Fault {
			n++
			return []storetest.Fault{storetest.Pass, storetest.CutRequest, storetest.Pass, storetest.SlowDown, storetest.Pass, storetest.LoseAnswer, storetest.Pass, storetest.Down}[n%8]
		})
		if created, err := objectstore.Publish(t.Context(), open(t, s), "a", filesOf(t, adapter(7)), nil); err != nil || !created {
			t.Fatalf("created %v, error %v", created, err)
		}
		if n, err := number(t, open(t, s), "a"); err != nil || n != 7 {
			t.Errorf("adapter %v, error %v; want 7", n, err)
		}
	})
}
