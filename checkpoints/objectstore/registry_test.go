package objectstore_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// eachPlace runs a test on a local folder and on names of servers.
func eachPlace(t *testing.T, f func(t *testing.T, place string, s objectstore.Settings)) {
	t.Run("folder", func(t *testing.T) { f(t, filepath.Join(t.TempDir(), "new"), objectstore.Settings{}) })
	storetest.Each(t, func(t *testing.T, s *storetest.Server) { f(t, "s3://test/adapters", settings(s)) })
}

// TestRegister: of several exporters at once every one is in the registry in the end, and what it lists is there.
func TestRegister(t *testing.T) {
	eachPlace(t, func(t *testing.T, place string, s objectstore.Settings) {
		if _, _, err := objectstore.OpenRegistry(t.Context(), place, s); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("nothing there: error %v", err)
		}
		const exporters = 5
		var all sync.WaitGroup
		for i := range exporters {
			all.Go(func() {
				a := adapter(i)
				a.Base.SHA256 = strings.Repeat(fmt.Sprint(i), 64)
				target := fmt.Sprintf("%s/model %d/judgeq", place, i)
				if !objectstore.IsURL(place) {
					if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
						t.Error(err)
					}
				}
				if _, err := objectstore.WriteAdapter(t.Context(), target, a, false, s, io.Discard); err != nil {
					t.Error(err)
				}
				if err := objectstore.Register(t.Context(), place+"/", target, a, s); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		r, done, err := objectstore.OpenRegistry(t.Context(), place, s)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if len(r.Models) != exporters {
			t.Fatalf("%d models, want %d: %s", len(r.Models), exporters, r.ListModels())
		}
		for _, m := range r.Models {
			if read, err := r.ReadAdapters(&m); err != nil || len(read) != 1 || fmt.Sprint(read[0].Metrics["number"]) != m.SHA256[:1] {
				t.Errorf("model %s: %v, %v", m.SHA256[:1], read, err)
			}
		}
	})
}

func TestRegisterRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range [][2]string{
		{dir, dir}, {dir, dir + "x/a"}, {dir + "/b", dir + "/a"}, {dir, "s3://test/a/b"}, {"s3://test/a", dir + "/a"},
		{"s3://test/a", "s3://test/a"}, {"s3://test/a", "s3://test/ab/c"}, {"s3://test/a", "s3://other/a/b"},
	} {
		if err := objectstore.Register(t.Context(), c[0], c[1], adapter(1), objectstore.Settings{}); err == nil || !strings.Contains(err.Error(), "want a folder below the registry's") {
			t.Errorf("%s of the registry %s: error %v", c[1], c[0], err)
		}
	}
	eachPlace(t, func(t *testing.T, place string, s objectstore.Settings) {
		store, folder, err := objectstore.Open(t.Context(), place, s)
		if err != nil {
			t.Fatal(err)
		}
		put(t, store, objectstore.Join(folder, "registry.json"), []byte("{"), objectstore.PutOptions{})
		if err := objectstore.Register(t.Context(), place, place+"/a", adapter(1), s); !errors.Is(err, checkpoints.ErrCorrupt) {
			t.Errorf("a damaged registry: error %v", err)
		}
		holds(t, store, objectstore.Join(folder, "registry.json"), []byte("{"))
	})
}

// TestRegistryLinks: a link in the folder of a registry does not lead out of it.
func TestRegistryLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := checkpoints.WriteAdapter(filepath.Join(outside, "a"), adapter(1), false); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "a"), filepath.Join(dir, "a")); err != nil {
		t.Skip(err)
	}
	if err := objectstore.Register(t.Context(), dir, filepath.Join(dir, "a"), adapter(1), objectstore.Settings{}); err != nil {
		t.Fatal(err)
	}
	r, done, err := objectstore.OpenRegistry(t.Context(), dir, objectstore.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := r.ReadAdapters(&r.Models[0]); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("error %v, want the link to be refused", err)
	}
}
