//go:build unix

package eviction_test

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"glimpse/eviction"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
)

// TestForeignPages: a file that is not the page that its name says is not read, whatever it is, nor waited for; the answer is the same,
// and the page is written anew.
func TestForeignPages(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 2, MaxPositions: 2048}.Open(t, "cpu")
	p, tokens := policy(t, m, "snapkv"), modeltest.Tokens(m, 5, 700)
	want := prefill(t, m, p, tokens, 100)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		raw, err := os.ReadFile(name)
		check(err)
		return raw
	}
	flip := func(at func(n int) int) func(names []string) {
		return func(names []string) {
			for _, name := range names {
				raw := read(name)
				raw[at(len(raw))] ^= 1
				check(os.WriteFile(name, raw, 0o600))
			}
		}
	}
	instead := func(f func(name string) error) func(names []string) {
		return func(names []string) {
			for _, name := range names {
				check(os.Remove(name))
				check(f(name))
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(names []string)
	}{
		{"swapped", func(names []string) {
			contents := make([][]byte, len(names))
			for i, name := range names {
				contents[i] = read(name)
			}
			for i, name := range names {
				check(os.WriteFile(name, contents[(i+1)%len(names)], 0o600))
			}
		}},
		{"hard links to another", func(names []string) {
			other := names[0] + ".other"
			check(os.Rename(names[len(names)-1], other))
			for i, name := range names {
				next := name + ".own"
				if i < len(names)-1 {
					check(os.Rename(name, next))
				}
				check(os.Link(other, name))
				other = next
			}
		}},
		{"symbolic links to the page itself", func(names []string) {
			for _, name := range names {
				check(os.Rename(name, name+".kept"))
				check(os.Symlink(name+".kept", name))
			}
		}},
		{"links to nowhere", instead(func(name string) error { return os.Symlink("nowhere", name) })},
		{"links to a device", instead(func(name string) error { return os.Symlink("/dev/zero", name) })},
		{"FIFOs", instead(func(name string) error { return syscall.Mkfifo(name, 0o600) })},
		{"folders", instead(func(name string) error { return os.Mkdir(name, 0o700) })},
		{"empty", instead(func(name string) error { return os.WriteFile(name, nil, 0o600) })},
		{"longer", func(names []string) {
			for _, name := range names {
				check(os.WriteFile(name, append(read(name), 0), 0o600))
			}
		}},
		{"cut", func(names []string) {
			for _, name := range names {
				check(os.Truncate(name, int64(len(read(name))-1)))
			}
		}},
		{"first bit flipped", flip(func(int) int { return 0 })},
		{"middle bit flipped", flip(func(n int) int { return n / 2 })},
		{"last bit flipped", flip(func(n int) int { return n - 1 })},
		{"without a name, as before version 2", func(names []string) {
			for _, name := range names {
				raw := read(name)
				raw = raw[len("glimpse-page 2\n") : len(raw)-sha256.Size]
				sum := sha256.Sum256(raw)
				check(os.WriteFile(name, append(raw, sum[:]...), 0o600))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := func() int {
				rt := eviction.NewRuntime(m)
				rt.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
				check(rt.Prefixes.KeepIn(t.Context(), m, dir, 1<<30, nil))
				done := make(chan *eviction.Session)
				go func() {
					got, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: 100})
					if err != nil {
						t.Error(err)
					}
					done <- got
				}()
				var got *eviction.Session
				select {
				case got = <-done:
				case <-time.After(20 * time.Second):
					t.Fatal("a file is waited for")
				}
				rt.Prefixes.Stop()
				if !sameBits(got.Logits(), want.Logits()) {
					t.Error("other logits")
				}
				return got.Reused
			}
			run()
			names, err := filepath.Glob(filepath.Join(dir, "*.page"))
			check(err)
			whole := run()
			if len(names) < 8 || whole < 500 {
				t.Fatalf("%d files, %d tokens were reused", len(names), whole)
			}
			c.change(names)
			if got := run(); got != 0 {
				t.Errorf("%d tokens were reused", got)
			}
			if got := run(); got != whole {
				t.Errorf("%d tokens were reused once the pages are written anew, want %d", got, whole)
			}
		})
	}
}

// TestFullDisk: pages that cannot be written are told of, once, and prompts go on.
func TestFullDisk(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 2, MaxPositions: 2048}.Open(t, "cpu")
	p, dir := policy(t, m, "snapkv"), filepath.Join(t.TempDir(), "pages")
	rt := eviction.NewRuntime(m)
	rt.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
	var told []error
	if err := rt.Prefixes.KeepIn(t.Context(), m, dir, 1<<30, func(err error) { told = append(told, err) }); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Prefill(background, p, eviction.Prompt{Tokens: modeltest.Tokens(m, 5, 400), Budget: 100}); err != nil {
		t.Fatal(err)
	}
	rt.Prefixes.Stop()
	if len(told) != 1 || !errors.Is(told[0], fs.ErrNotExist) {
		t.Errorf("told %v, want one error of a folder that is gone", told)
	}
}

// TestSalts: prompts of different salts share no pages, in memory nor in files, and those of one salt do.
func TestSalts(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 2, MaxPositions: 2048}.Open(t, "cpu")
	p, tokens, dir := policy(t, m, "snapkv"), modeltest.Tokens(m, 5, 400), t.TempDir()
	for _, round := range []struct {
		name string
		want map[string][]int // what is reused by prompts of a salt, one after another
	}{
		{"in memory", map[string][]int{"": {0, 320}, "a": {0, 320}, "ab": {0, 320}}},
		{"in files", map[string][]int{"": {320}, "a": {320}, "ab": {320}, "b": {0}, "0": {0}}},
	} {
		rt := eviction.NewRuntime(m)
		rt.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
		if err := rt.Prefixes.KeepIn(t.Context(), m, dir, 1<<30, nil); err != nil {
			t.Fatal(err)
		}
		for salt, wants := range round.want {
			for i, want := range wants {
				s, err := rt.NewSession(p, eviction.Pairs(100))
				if err != nil {
					t.Fatal(err)
				}
				s.CacheSalt = salt
				if err := s.Turn(background, eviction.Prompt{Tokens: slices.Clone(tokens)}); err != nil {
					t.Fatal(err)
				}
				if s.Reused != want {
					t.Errorf("%s, salt %q, prompt %d: %d tokens were reused, want %d", round.name, salt, i, s.Reused, want)
				}
			}
		}
		rt.Prefixes.Stop()
	}
}
