package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// open opens the bucket anew, as another process would.
func open(t *testing.T, s *storetest.Server) objectstore.Store {
	t.Helper()
	store, key, err := objectstore.Open(t.Context(), "s3://"+storetest.Bucket+"/x", settings(s))
	if err != nil || key != "x" {
		t.Fatalf("open: key %q, error %v", key, err)
	}
	return store
}

func settings(s *storetest.Server) objectstore.Settings {
	return objectstore.ForTests(objectstore.Settings{Endpoint: s.URL}, storetest.PartBytes, time.Millisecond, 6)
}

// uploads is the number of the key's unfinished uploads, by the server's account.
func uploads(t *testing.T, s *storetest.Server, key string) int {
	t.Helper()
	n, err := objectstore.UnfinishedUploads(context.Background(), open(t, s), key)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func put(t *testing.T, s objectstore.Store, key string, data []byte, opt objectstore.PutOptions) {
	t.Helper()
	if err := s.Put(t.Context(), key, bytes.NewReader(data), opt); err != nil {
		t.Fatal(err)
	}
}

// holds fails the test unless the object has this content.
func holds(t *testing.T, s objectstore.Store, key string, want []byte) {
	t.Helper()
	got, err := objectstore.Get(t.Context(), s, key, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes that differ from the %d stored", s.URL(key), len(got), len(want))
	}
}

// conform checks what every store promises.
func conform(t *testing.T, s objectstore.Store) {
	ctx := t.Context()
	one, two := storetest.Content(1, 1000), storetest.Content(2, 700)
	if _, err := s.Stat(ctx, "a/one"); !errors.Is(err, objectstore.ErrNotExist) {
		t.Fatalf("stat of nothing: error %v, want ErrNotExist", err)
	}
	if _, err := s.Open(ctx, "a/one"); !errors.Is(err, objectstore.ErrNotExist) {
		t.Fatalf("open of nothing: error %v, want ErrNotExist", err)
	}
	if list, err := s.List(ctx, "a"); err != nil || len(list) != 0 {
		t.Fatalf("list of nothing: %v, error %v", list, err)
	}
	put(t, s, "a/one", one, objectstore.PutOptions{New: true})
	holds(t, s, "a/one", one)
	if err := s.Put(ctx, "a/one", bytes.NewReader(two), objectstore.PutOptions{New: true}); !errors.Is(err, objectstore.ErrExists) {
		t.Fatalf("second new object: error %v, want ErrExists", err)
	}
	holds(t, s, "a/one", one)
	before, err := s.Stat(ctx, "a/one")
	if err != nil || before.Size != 1000 || before.Key != "a/one" {
		t.Fatalf("stat: %+v, error %v", before, err)
	}
	var told int64
	put(t, s, "a/one", two, objectstore.PutOptions{Progress: func(n int64) { told += n }})
	holds(t, s, "a/one", two)
	if told != 700 {
		t.Errorf("progress told of %d bytes, want 700", told)
	}
	if after, err := s.Stat(ctx, "a/one"); err != nil || after.Version == before.Version {
		t.Errorf("version %q after a replacement, it was %q (error %v)", after.Version, before.Version, err)
	}

	o, err := s.Open(ctx, "a/one")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, r := range []struct{ off, n, want int }{{0, 700, 700}, {0, 1, 1}, {699, 1, 1}, {300, 123, 123}, {690, 50, 10}, {700, 5, 0}, {900, 5, 0}} {
		p := make([]byte, r.n)
		n, err := o.ReadAt(p, int64(r.off))
		if n != r.want || (n < r.n) != (err == io.EOF) || n == r.n && err != nil || !bytes.Equal(p[:n], two[min(r.off, 700):][:n]) {
			t.Errorf("%d bytes at %d: got %d of them, error %v; want %d", r.n, r.off, n, err, r.want)
		}
	}

	put(t, s, "a/two", one, objectstore.PutOptions{})
	put(t, s, "a/below/three", one, objectstore.PutOptions{})
	put(t, s, "ab", one, objectstore.PutOptions{})
	put(t, s, "a/empty", nil, objectstore.PutOptions{New: true})
	holds(t, s, "a/empty", nil)
	list, err := s.List(ctx, "a")
	var names []string
	for _, i := range list {
		names = append(names, i.Key)
	}
	if err != nil || !slices.Equal(names, []string{"a/empty", "a/one", "a/two"}) || list[2].Size != 1000 {
		t.Errorf("list: %q, error %v", names, err)
	}
	if err := readFolder(objectstore.FS(ctx, s, "a"), map[string][]byte{"empty": nil, "one": two, "two": one}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := s.Delete(ctx, "a/two"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Stat(ctx, "a/two"); !errors.Is(err, objectstore.ErrNotExist) {
		t.Errorf("a deleted object: error %v", err)
	}
	for _, bad := range []string{"", "/x", "x/", "../x", "a//b"} {
		if err := s.Put(ctx, bad, bytes.NewReader(one), objectstore.PutOptions{}); err == nil {
			t.Errorf("key %q was taken", bad)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(cancelled, "late", bytes.NewReader(one), objectstore.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("put after a cancel: error %v", err)
	}
	if _, err := s.Stat(ctx, "late"); !errors.Is(err, objectstore.ErrNotExist) {
		t.Errorf("put after a cancel left an object (%v)", err)
	}
	race(t, s)
	if err := s.Sweep(ctx, "a/one"); err != nil {
		t.Errorf("sweep: %v", err)
	}
	holds(t, s, "a/one", two)
}

// appends is an Update that adds a byte.
func appends(c byte) func(old []byte) ([]byte, error) {
	return func(old []byte) ([]byte, error) { return append(bytes.Clone(old), c), nil }
}

// TestUpdate: of several that change one object at once, none loses what another wrote; an error changes nothing.
func TestUpdate(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storetest.Server, reopen func(t *testing.T) objectstore.Store) {
		const writers, times = 4, 5
		var all sync.WaitGroup
		for i := range writers {
			store := reopen(t)
			all.Go(func() {
				for range times {
					if err := store.Update(t.Context(), "a/list", 1000, appends(byte('a'+i))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		s := reopen(t)
		got, err := objectstore.Get(t.Context(), s, "a/list", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range writers {
			if n := bytes.Count(got, []byte{byte('a' + i)}); n != times {
				t.Errorf("%d of %d bytes of writer %d in %q", n, times, i, got)
			}
		}
		broken := errors.New("broken")
		if err := s.Update(t.Context(), "a/list", 1000, func([]byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
			t.Errorf("error %v, want that of the function", err)
		}
		if err := s.Update(t.Context(), "a/list", 10, appends('x')); err == nil || !strings.Contains(err.Error(), "want at most 10") {
			t.Errorf("an object above the limit: error %v", err)
		}
		holds(t, s, "a/list", got)
	})
}

// TestUpdateOfALostAnswer: the server has stored what the answer that was lost had said.
func TestUpdateOfALostAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		store := open(t, s)
		put(t, store, "list", []byte("a"), objectstore.PutOptions{})
		s.Disturb(storetest.First(1, "PUT list", storetest.LoseAnswer))
		if err := store.Update(t.Context(), "list", 100, appends('b')); err != nil {
			t.Fatal(err)
		}
		holds(t, store, "list", []byte("ab"))
	})
}

// TestUpdateAfterAKill: a process that was killed while it updated an object is waited for, until it has shown no life
// for some minutes. One claim at most is left behind.
func TestUpdateAfterAKill(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		store := open(t, s)
		killed, err := objectstore.Claims{}.Take(t.Context(), store, "a/.list.claims")
		if err != nil {
			t.Fatal(err)
		}
		killed.Stop()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.Update(soon, "a/list", 100, appends('a')); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("beside a claim that is held: error %v, want it to wait", err)
		}
		s.Age(t, "a/.list.claims/claim-000001", 4*time.Minute)
		for range 2 {
			if err := store.Update(t.Context(), "a/list", 100, appends('b')); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, store, "a/list", []byte("bb"))
		if left, err := store.List(t.Context(), "a/.list.claims"); err != nil || len(left) != 1 {
			t.Errorf("%d claims are left, error %v", len(left), err)
		}
	})
}

// race lets several writers put one new object.
func race(t *testing.T, s objectstore.Store) {
	const writers = 6
	results := make(chan error, writers)
	for i := range writers {
		go func() {
			results <- s.Put(t.Context(), "race", bytes.NewReader(storetest.Content(uint64(i), 20_000)), objectstore.PutOptions{New: true})
		}()
	}
	won := 0
	for range writers {
		if err := <-results; err == nil {
			won++
		} else if !errors.Is(err, objectstore.ErrExists) {
			t.Errorf("a loser's error is %v, want ErrExists", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d writers of one new object won, want 1", won, writers)
	}
}

// readFolder reads a folder as a file system in all ways.
func readFolder(fsys fs.FS, want map[string][]byte) error {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil || len(entries) != len(want) {
		return fmt.Errorf("the folder lists %d files, want %d (error %v)", len(entries), len(want), err)
	}
	for _, e := range entries {
		data, ok := want[e.Name()]
		if !ok {
			return fmt.Errorf("the folder lists %q", e.Name())
		}
		info, err := fs.Stat(fsys, e.Name())
		if err != nil || info.Size() != int64(len(data)) || !info.Mode().IsRegular() {
			return fmt.Errorf("stat of %s: %v, error %v", e.Name(), info, err)
		}
		if got, err := fs.ReadFile(fsys, e.Name()); err != nil || !bytes.Equal(got, data) {
			return fmt.Errorf("read of %s: %d bytes, error %v", e.Name(), len(got), err)
		}
		f, err := fsys.Open(e.Name())
		if err != nil {
			return err
		}
		got, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, data) {
			return fmt.Errorf("open and read of %s: %d bytes, error %v", e.Name(), len(got), err)
		}
	}
	if _, err := fs.ReadFile(fsys, "nothing"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read of a file that is not there: error %v", err)
	}
	if _, err := fsys.Open("../ab"); err == nil {
		return errors.New("a name outside the folder was opened")
	}
	return nil
}

func TestLocalConforms(t *testing.T) {
	dir := t.TempDir()
	conform(t, objectstore.Local(filepath.Join(dir, "not", "there", "yet")))
}

func TestS3Conforms(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) { conform(t, open(t, s)) })
}

func TestLocalSweep(t *testing.T) {
	dir := t.TempDir()
	leftover := filepath.Join(dir, ".x.tmp-0123456789abcdef")
	if err := os.WriteFile(leftover, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := objectstore.Local(dir)
	if list, err := s.List(t.Context(), "."); err != nil || len(list) != 0 {
		t.Errorf("a leftover is listed: %v, error %v", list, err)
	}
	if err := s.Sweep(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leftover); !os.IsNotExist(err) {
		t.Errorf("a leftover is still there (%v)", err)
	}
}

func TestOpenNames(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_ENDPOINT_URL", "")
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	for name, want := range map[string]string{
		"s3://":           "want s3://BUCKET/NAME",
		"s3://bucket":     "want s3://BUCKET/NAME",
		"s3:///key":       "want s3://BUCKET/NAME",
		"s3://b/../c":     "want s3://BUCKET/NAME",
		"s3://b//c":       "want s3://BUCKET/NAME",
		"gs://bucket/key": "want s3://BUCKET/NAME or a path",
		"":                "empty",
		"s3://bucket/key": "no region is set",
	} {
		if _, _, err := objectstore.Open(t.Context(), name, objectstore.Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want it to say %q", name, err, want)
		}
	}
	for _, s := range []objectstore.Settings{{Endpoint: "127.0.0.1:9000"}, {Endpoint: "ftp://x"}, {Region: "eu-west-1", PathStyle: "maybe"}} {
		if _, _, err := objectstore.Open(t.Context(), "s3://b/k", s); err == nil {
			t.Errorf("settings %+v were taken", s)
		}
	}
	store, key, err := objectstore.Open(t.Context(), "s3://b/k/l/", objectstore.Settings{Region: "eu-west-1"})
	if err != nil || key != "k/l" || store.URL(key) != "s3://b/k/l" {
		t.Errorf("key %q, error %v", key, err)
	}
}
