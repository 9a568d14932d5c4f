package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

func cacheHolds(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	for name, data := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %d bytes that differ from the %d stored (error %v)", name, len(got), len(data), err)
		}
	}
}

// TestCache: large objects come in ranges, and once; a new version takes the place
// of the old one.
func TestCache(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		config := storetest.Content(1, 300)
		put(t, open(t, s), "m/config.json", config, objectstore.PutOptions{})
		put(t, open(t, s), "m/model.safetensors", big, objectstore.PutOptions{})
		put(t, open(t, s), "m/empty", nil, objectstore.PutOptions{})
		names := []string{"config.json", "model.safetensors", "empty"}
		var missing, arrived atomic.Int64
		c := objectstore.Cache{Dir: t.TempDir(), Progress: func(n, m int64) { arrived.Add(n); missing.Add(m) }}
		s.Disturb(nil)
		dir, err := c.Folder(t.Context(), open(t, s), "m", names)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(dir) != "m" {
			t.Errorf("folder %s, want one named m", dir)
		}
		cacheHolds(t, dir, map[string][]byte{"config.json": config, "model.safetensors": big, "empty": nil})
		if n := s.Count("GET m/model.safetensors"); n != 5 {
			t.Errorf("%d requests for %d bytes, want 5 ranges of %d", n, len(big), objectstore.ChunkBytes())
		}
		if want := int64(len(big) + len(config)); missing.Load() != want || arrived.Load() != want {
			t.Errorf("progress told of %d of %d bytes, want %d", arrived.Load(), missing.Load(), want)
		}

		s.Disturb(nil)
		if _, err := c.Folder(t.Context(), open(t, s), "m", names); err != nil {
			t.Fatal(err)
		}
		if n := s.Count("GET "); n != 0 {
			t.Errorf("%d requests for what is in the cache", n)
		}
		config = storetest.Content(2, 300) // of the same size
		put(t, open(t, s), "m/config.json", config, objectstore.PutOptions{})
		s.Disturb(nil)
		if _, err := c.Folder(t.Context(), open(t, s), "m", names[:2]); err != nil {
			t.Fatal(err)
		}
		cacheHolds(t, dir, map[string][]byte{"config.json": config, "model.safetensors": big})
		if n := s.Count("GET m/model"); n != 0 {
			t.Errorf("%d requests for weights that have not changed", n)
		}
		if _, err := os.Stat(filepath.Join(dir, "empty")); !os.IsNotExist(err) {
			t.Errorf("a file that is no longer asked for is there (%v)", err)
		}
		if _, err := c.Folder(t.Context(), open(t, s), "m", []string{"config.json", "nothing"}); !errors.Is(err, objectstore.ErrNotExist) || !strings.Contains(err.Error(), "m/nothing") {
			t.Errorf("an object that is not there: error %v", err)
		}
	})
}

// TestCacheGoesOn: what arrived before a failure is not fetched again, unless the
// object has changed since.
func TestCacheGoesOn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		put(t, open(t, s), "m/w", big, objectstore.PutOptions{})
		c := objectstore.Cache{Dir: t.TempDir()}
		fail := func() {
			t.Helper()
			lastChunk := fmt.Sprintf("bytes=%d-", 4*objectstore.ChunkBytes())
			s.Disturb(func(r *http.Request) storetest.Fault {
				if strings.HasPrefix(r.Header.Get("Range"), lastChunk) {
					return storetest.Down
				}
				return storetest.Pass
			})
			if _, err := c.Folder(t.Context(), open(t, s), "m", []string{"w"}); err == nil {
				t.Fatal("a download without its last part succeeded")
			}
			s.Disturb(nil)
		}
		fail()
		before, err := objectstore.ChunksHere(c.Dir, "w")
		if err != nil || before == 0 {
			t.Fatalf("%d chunks are kept, error %v", before, err)
		}
		dir, err := c.Folder(t.Context(), open(t, s), "m", []string{"w"})
		if err != nil {
			t.Fatal(err)
		}
		cacheHolds(t, dir, map[string][]byte{"w": big})
		if n := s.Count("GET m/w"); n != 5-before {
			t.Errorf("%d requests after %d of 5 chunks had arrived", n, before)
		}

		os.RemoveAll(c.Dir)
		fail()
		other := storetest.Content(41, len(big))
		put(t, open(t, s), "m/w", other, objectstore.PutOptions{})
		if dir, err = c.Folder(t.Context(), open(t, s), "m", []string{"w"}); err != nil {
			t.Fatal(err)
		}
		cacheHolds(t, dir, map[string][]byte{"w": other})
	})
}

// TestCacheVerifies: an altered object does not get into the cache.
func TestCacheVerifies(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		put(t, open(t, s), "m/w", medium, objectstore.PutOptions{})
		s.Alter(t, "m/w", len(medium)-1)
		c := objectstore.Cache{Dir: t.TempDir()}
		for range 2 {
			if _, err := c.Folder(t.Context(), open(t, s), "m", []string{"w"}); !errors.Is(err, objectstore.ErrDamaged) {
				t.Errorf("error %v, want ErrDamaged", err)
			}
		}
		path := filepath.Join(t.TempDir(), "w")
		if err := objectstore.Download(t.Context(), open(t, s), "m/w", path); !errors.Is(err, objectstore.ErrDamaged) {
			t.Errorf("download: error %v, want ErrDamaged", err)
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 0 {
			t.Errorf("a failed download left %v (%v)", entries, err)
		}
	})
}

func TestDownload(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storetest.Server, reopen func(t *testing.T) objectstore.Store) {
		path := filepath.Join(t.TempDir(), "w")
		if err := objectstore.PutFile(t.Context(), reopen(t), "m/w", "cache_test.go", objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := objectstore.Download(t.Context(), reopen(t), "m/w", path); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("cache_test.go")
		if err != nil {
			t.Fatal(err)
		}
		cacheHolds(t, filepath.Dir(path), map[string][]byte{"w": want})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := objectstore.Download(ctx, reopen(t), "m/w", path); !errors.Is(err, context.Canceled) {
			t.Errorf("download after a cancel: error %v", err)
		}
	})
}

// TestChecksums: the algorithms that servers use, on the published check values of
// "123456789".
func TestChecksums(t *testing.T) {
	for algorithm, want := range map[string]string{
		"CRC32":     "cbf43926",
		"CRC32C":    "e3069283",
		"CRC64NVME": "ae8b14860a799888",
		"SHA1":      "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
		"SHA256":    "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
	} {
		if got := objectstore.Checksum(algorithm, []byte("123456789")); got != want {
			t.Errorf("%s: %s, want %s", algorithm, got, want)
		}
	}
}

// TestDamagedCopyIsFetchedAgain: a copy in the cache that was written to, cut or put out
// of the way repairs itself; one that was merely touched stays.
func TestDamagedCopyIsFetchedAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		data := storetest.Content(3, 10_000)
		put(t, open(t, s), "d/file", data, objectstore.PutOptions{})
		c := objectstore.Cache{Dir: t.TempDir()}
		fetch := func() (string, int) {
			s.Disturb(nil)
			dir, err := c.Folder(t.Context(), open(t, s), "d", []string{"file"})
			if err != nil {
				t.Fatal(err)
			}
			cacheHolds(t, dir, map[string][]byte{"file": data})
			return filepath.Join(dir, "file"), s.Count("GET d/file")
		}
		path, _ := fetch()
		for name, damage := range map[string]func() error{
			"changed": func() error {
				return os.WriteFile(path, append(bytes.Clone(data[:9_999]), data[9_999]^1), 0o644)
			},
			"cut":      func() error { return os.Truncate(path, 5_000) },
			"removed":  func() error { return os.Remove(path) },
			"a folder": func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if _, n := fetch(); n == 0 {
				t.Errorf("%s: not fetched again", name)
			}
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, n := fetch(); n != 0 {
			t.Errorf("touched: fetched again")
		}
	})
}

// TestLocalModelFile: a GGUF file of a bucket comes with the others of a split model and nothing
// else; a folder of such files says how they are named.
func TestLocalModelFile(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		t.Setenv("GLIMPSE_CACHE", t.TempDir())
		for _, name := range []string{"q/m-Q4_0.gguf", "q/m-00001-of-00002.gguf", "q/m-00002-of-00002.gguf", "q/README.md", "half/m-00001-of-00002.gguf"} {
			put(t, open(t, s), name, []byte(name), objectstore.PutOptions{})
		}
		local := func(name string) (string, error) {
			return objectstore.LocalModel(t.Context(), "s3://"+storetest.Bucket+"/"+name, objectstore.Settings{Endpoint: s.URL}, io.Discard)
		}
		for name, want := range map[string][]string{"q/m-Q4_0.gguf": {"m-Q4_0.gguf"}, "q/m-00002-of-00002.gguf": {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}} {
			file, err := local(name)
			if err != nil || filepath.Base(file) != filepath.Base(name) {
				t.Fatalf("%s: %s (%v)", name, file, err)
			}
			files := map[string][]byte{}
			for _, name := range want {
				files[name] = []byte("q/" + name)
			}
			cacheHolds(t, filepath.Dir(file), files)
		}
		if _, err := local("half/m-00001-of-00002.gguf"); !errors.Is(err, objectstore.ErrNotExist) || !strings.Contains(err.Error(), "m-00002-of-00002.gguf") {
			t.Errorf("half a model: %v, want ErrNotExist with the missing file", err)
		}
		if _, err := local("q"); err == nil || !strings.Contains(err.Error(), "its GGUF files are named with the folder, as s3://"+storetest.Bucket+"/q/m-0") {
			t.Errorf("a folder of GGUF files: %v, want how they are named", err)
		}
	})
}

// TestLocalData: a file or a folder of a bucket becomes a local one, and what is not there
// is ErrNotExist.
func TestLocalData(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		t.Setenv("GLIMPSE_CACHE", t.TempDir())
		for _, name := range []string{"rows/a.jsonl", "rows/b.parquet", "rows/.hidden"} {
			put(t, open(t, s), name, []byte(name), objectstore.PutOptions{})
		}
		local := func(name string) (string, error) {
			return objectstore.LocalData(t.Context(), "s3://"+storetest.Bucket+"/"+name, objectstore.Settings{Endpoint: s.URL}, io.Discard)
		}
		for _, name := range []string{"rows", "rows/"} {
			dir, err := local(name)
			if err != nil {
				t.Fatal(err)
			}
			cacheHolds(t, dir, map[string][]byte{"a.jsonl": []byte("rows/a.jsonl"), "b.parquet": []byte("rows/b.parquet")})
		}
		file, err := local("rows/a.jsonl")
		if data, _ := os.ReadFile(file); err != nil || string(data) != "rows/a.jsonl" || filepath.Base(file) != "a.jsonl" {
			t.Errorf("%s holds %q, %v", file, data, err)
		}
		if _, err := local("nothing"); !errors.Is(err, objectstore.ErrNotExist) || !strings.Contains(err.Error(), "/nothing: got a name with no file directly below it, want a file or a folder of files") {
			t.Errorf("what is not there: %v, want ErrNotExist with the name", err)
		}
		if path, err := objectstore.LocalData(t.Context(), "some/path", objectstore.Settings{}, io.Discard); path != "some/path" || err != nil {
			t.Errorf("a path: %q, %v", path, err)
		}
	})
}

// TestJournal: of a journal that was cut anywhere the whole entries count, also when others come
// after the cut; one of another version is begun anew.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	open := func(head string, goOn bool, want ...int64) {
		t.Helper()
		f, done, err := objectstore.OpenJournal(path, head, goOn)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := slices.Sorted(maps.Keys(done)); !slices.Equal(got, want) {
			t.Errorf("chunks %v, want %v", got, want)
		}
	}
	for cut, want := range map[string][]int64{
		"v1": nil, "v1\n": nil, "v1\n0.": {0}, "v1\n0.\n1": {0}, "v1\n0.\n1\n3.": {0, 3}, "v1\n0.\n12.\n\x00\x00": {0, 12}, "v": nil, "": nil, "v10\n0.": nil,
	} {
		if err := os.WriteFile(path, []byte(cut), 0o666); err != nil {
			t.Fatal(err)
		}
		open("v1", true, want...)
	}
	if err := os.WriteFile(path, []byte("v1\n0."), 0o666); err != nil {
		t.Fatal(err)
	}
	open("v1", false)
	open("v1", true)
}
