package jobs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/internal/filelock"
	"glimpse/jobs"
)

// each runs a test on a folder and on buckets. open is the work as another process has it.
func each(t *testing.T, f func(t *testing.T, open func() *jobs.Work, s *storetest.Server)) {
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		f(t, func() *jobs.Work { return jobs.Open(objectstore.Local(dir), ".work", dir) }, nil)
		if err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				t.Errorf("left: %s", path)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		f(t, func() *jobs.Work {
			store, folder, err := objectstore.Open(t.Context(), "s3://"+storetest.Bucket+"/run", objectstore.Settings{Endpoint: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			w := jobs.Open(store, folder+"/.work", "")
			w.Claims.Beat = time.Hour
			return w
		}, s)
	})
}

func share(w *jobs.Work, units int) *jobs.Share[int] {
	return &jobs.Share[int]{
		Work: w, Name: strconv.Itoa, Accept: func(unit int, result []byte) (bool, error) {
			return string(result) == fmt.Sprint("result of ", unit), nil
		},
		Units: func(yield func(int) bool) {
			for i := range units {
				if !yield(i) {
					return
				}
			}
		},
	}
}

// do does all units that are handed out, and returns them.
func do(t *testing.T, s *jobs.Share[int]) (done []int) {
	t.Helper()
	defer s.Close()
	for {
		unit, claim, more, err := s.Next(t.Context(), true)
		if err == nil && more {
			err = claim.Finish(t.Context(), fmt.Append(nil, "result of ", unit))
		}
		if err != nil {
			t.Error(err)
		}
		if err != nil || !more {
			return done
		}
		done = append(done, unit)
	}
}

// Every unit is done once, by whichever process, and one process finishes the run.
func TestUnitsAreSharedOut(t *testing.T) {
	each(t, func(t *testing.T, open func() *jobs.Work, _ *storetest.Server) {
		const units, processes = 12, 3
		var mu sync.Mutex
		times, finished := make(map[int]int), 0
		var wg, entered sync.WaitGroup // who comes late finds nothing, and begins anew
		entered.Add(processes)
		for range processes {
			w := open()
			wg.Go(func() {
				leave, err := w.Enter(t.Context(), "", func(bool) error { return nil })
				if err != nil {
					t.Error(err)
					entered.Done()
					return
				}
				defer leave()
				if _, err := w.Agree(t.Context(), []byte("settings")); err != nil {
					t.Error(err)
				}
				entered.Done()
				entered.Wait()
				s := share(w, units)
				done := do(t, s)
				mu.Lock()
				for _, unit := range done {
					times[unit]++
				}
				mu.Unlock()
				first, err := w.Finish(t.Context(), func() error {
					n := 0
					err := w.Results(t.Context(), func(string, []byte) error { n++; return nil })
					if n != units {
						t.Errorf("%d results, want %d", n, units)
					}
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				} else if first {
					finished++
				}
			})
		}
		wg.Wait()
		for i := range units {
			if times[i] != 1 {
				t.Errorf("unit %d was done %d times", i, times[i])
			}
		}
		if finished != 1 {
			t.Errorf("the run was finished %d times", finished)
		}
	})
}

// The unit of a process that was killed is done by another: of one in a folder at once, in a bucket when the claim is stale. A
// result that is not what is wanted is made anew.
func TestUnitsOfTheDeadAreTakenOver(t *testing.T) {
	each(t, func(t *testing.T, open func() *jobs.Work, s *storetest.Server) {
		if _, err := open().Agree(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		dead := share(open(), 3)
		unit, claim, more, err := dead.Next(t.Context(), true)
		if unit != 0 || !more || err != nil {
			t.Fatal(unit, more, err)
		}
		defer dead.Close()
		living := share(open(), 3)
		living.Free = true
		if got := do(t, living); !slices.Equal(got, []int{1, 2}) || living.Left() != 1 {
			t.Fatalf("did %v, %d left: want 1 and 2, and one left to the other", got, living.Left())
		}
		if s != nil { // nothing is heard of it
			s.Age(t, "run/.work/claims/0/claim-000001", 4*time.Minute)
		} else {
			claim.Release() // as the system does when a process dies
		}
		if got := do(t, share(open(), 3)); !slices.Equal(got, []int{0}) {
			t.Fatalf("did %v, want the unit of the dead", got)
		}
		wants := share(open(), 3)
		wants.Accept = func(unit int, _ []byte) (bool, error) { return unit != 1, nil }
		wants.Free = true
		if got := do(t, wants); !slices.Equal(got, []int{1}) {
			t.Errorf("did %v, want the one whose result is another", got)
		}
		if err := open().Discard(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// What a process stores first all agree on, and who comes when another has finished has nothing to do.
func TestAgreement(t *testing.T) {
	each(t, func(t *testing.T, open func() *jobs.Work, _ *storetest.Server) {
		one, two := open(), open()
		if other, err := one.Agree(t.Context(), []byte("one")); other != nil || err != nil {
			t.Fatal(string(other), err)
		}
		if other, err := two.Agree(t.Context(), []byte("two")); string(other) != "one" || err != nil {
			t.Fatal(string(other), err)
		}
		late := share(two, 4)
		late.Free = true
		if _, err := one.Finish(t.Context(), func() error { return errors.New("disk full") }); err == nil {
			t.Error("no error")
		}
		if done, err := one.Finish(t.Context(), func() error { return nil }); !done || err != nil {
			t.Error(done, err)
		}
		if got := do(t, late); len(got) != 0 || !late.Over() {
			t.Errorf("did %v of a run that another has finished", got)
		}
		if done, err := two.Finish(t.Context(), func() error { return nil }); done || err != nil {
			t.Errorf("finished again: %v, %v", done, err)
		}
	})
}

// A process is alive from Enter until it leaves, and several that come at once wait for each other.
func TestAlive(t *testing.T) {
	dir := t.TempDir()
	open := func() *jobs.Work { return jobs.Open(objectstore.Local(dir), ".a.work", dir) }
	var leaves []func()
	for i := range 3 {
		w := open()
		leave, err := w.Enter(t.Context(), "", func(alive bool) error {
			if alive != (i > 0) {
				t.Errorf("process %d: others alive: %v", i, alive)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	for _, leave := range leaves {
		leave()
	}
	refused := errors.New("refused")
	if _, err := open().Enter(t.Context(), "", func(bool) error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v (%v)", entries, err)
	}
}

// TestEnterWhileAnotherLooks: a process whose lock another one is looking at comes, and leaves.
func TestEnterWhileAnotherLooks(t *testing.T) {
	dir := t.TempDir()
	w := jobs.Open(objectstore.Local(dir), ".work", dir)
	if err := os.MkdirAll(filepath.Dir(w.Worker()), 0o777); err != nil {
		t.Fatal(err)
	}
	unlock, free, err := filelock.TryLock(w.Worker())
	if err != nil || !free {
		t.Fatal(free, err)
	}
	time.AfterFunc(20*time.Millisecond, unlock)
	leave, err := w.Enter(t.Context(), "", func(bool) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

func TestRefuse(t *testing.T) {
	broken := errors.New("broken")
	if err := cmp.Or(jobs.Refuse(false, "a"), nil, jobs.Refuse(true, "b: %w", broken), broken); !errors.Is(err, broken) || err.Error() != "b: broken" {
		t.Errorf("%v, want the first row that is bad", err)
	}
}

// watched is a store that calls a function when something was put.
type watched struct {
	objectstore.Store
	put func()
}

func (s *watched) Put(ctx context.Context, key string, src objectstore.Source, o objectstore.PutOptions) error {
	err := s.Store.Put(ctx, key, src, o)
	s.put()
	return err
}

// TestRunIsSeenWhileItBegins: a goroutine that looks at a run which another one of the same process begins takes it for no other run.
func TestRunIsSeenWhileItBegins(t *testing.T) {
	dir := t.TempDir()
	store := &watched{Store: objectstore.Local(dir)}
	w := jobs.Open(store, ".work", dir)
	store.put = func() {
		if text, err := w.Agreed(t.Context()); err != nil || text == nil {
			t.Errorf("agreed on %q, error %v", text, err)
		}
	}
	if other, err := w.Agree(t.Context(), []byte("settings")); other != nil || err != nil {
		t.Fatalf("another has agreed on %q, error %v, want nobody", other, err)
	}
	if text, err := w.Agreed(t.Context()); string(text) != "settings" || err != nil {
		t.Errorf("agreed on %q, error %v", text, err)
	}
}

// TestNothingIsLeftOfTheDead: the last process that leaves takes what a killed one has left with it.
func TestNothingIsLeftOfTheDead(t *testing.T) {
	dir := t.TempDir()
	w := jobs.Open(objectstore.Local(dir), ".work", dir)
	leave, err := w.Enter(t.Context(), "", func(bool) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".work", "workers", "dead"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	leave()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v are left, error %v", entries, err)
	}
}

// TestReopenLines: whole lines are taken, and what a kill has cut, or is refused, makes room for those that come next.
func TestReopenLines(t *testing.T) {
	for name, c := range map[string]struct{ text, taken, left string }{
		"none":    {"", "", ""},
		"whole":   {"a\nb\n", "ab", "a\nb\n"},
		"cut":     {"a\nb\nc", "ab", "a\nb\n"},
		"refused": {"a\n!\nc\n", "a", "a\n"},
	} {
		path := filepath.Join(t.TempDir(), "lines")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		taken := ""
		f, err := jobs.ReopenLines(path, func(line []byte) (bool, error) {
			if string(line) == "!" {
				return false, nil
			}
			taken += string(line)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("next\n")
		if got, readErr := os.ReadFile(path); errors.Join(err, readErr, f.Close()) != nil || string(got) != c.left+"next\n" || taken != c.taken {
			t.Errorf("%s: took %q, the file holds %q, want %q and %q", name, taken, got, c.taken, c.left+"next\n")
		}
	}
	if _, err := jobs.ReopenLines(filepath.Join(t.TempDir(), "new"), func([]byte) (bool, error) { return true, nil }); err != nil {
		t.Error(err)
	}
}
