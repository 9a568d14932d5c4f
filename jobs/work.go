package jobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/internal/filelock"
	"glimpse/internal/outputs"
	"glimpse/internal/patience"
)

// errTaken is the error of a claim that another process has.
var errTaken = errors.New("another process has it")

// ErrOver is the error of who begins a run that another process has finished.
var ErrOver = errors.New("another process has finished the run")

// maxResult bounds what is read of the result of a unit.
const maxResult = 1 << 30

// The folders of a Work, and its agreement.
const (
	results  = "results" // of units, by their names
	claims   = "claims"  // who does which
	workers  = "workers" // a lock of each process, on a disk
	notes    = "notes"   // what processes say of themselves
	settings = "settings"
)

// Work is the folder of a store in which the processes of one run meet.
type Work struct {
	Claims objectstore.Claims // in a bucket

	// Settings is what this process would make the run with. Before it stores its first result it agrees with the others: the
	// settings of the process that came first hold. OnBegin then takes them, or nil in the process that came first, and may
	// refuse them. Nil: nothing is agreed on.
	Settings []byte
	OnBegin  func(ctx context.Context, first []byte) error

	mu    sync.Mutex
	begun bool     // this process has agreed
	held  sync.Map // claims of units that this process has, by themselves

	store  objectstore.Store
	folder string
	root   string                 // the store's folder on this machine's disks; "" in a bucket
	path   string                 // the work's folder there
	id     string                 // of this process
	run    atomic.Pointer[string] // the run that was seen here first, by its ID; nil: none
}

// Open is the work in a folder of a store. dir is the store's own folder where it is on a disk, and "" for a bucket.
// Nothing is written.
func Open(store objectstore.Store, folder, dir string) *Work {
	w := &Work{store: store, folder: folder, id: rand.Text()}
	if dir != "" {
		w.root, w.path = filepath.Clean(dir), filepath.Join(dir, filepath.FromSlash(folder))
	}
	return w
}

func (w *Work) key(names ...string) string { return objectstore.Join(w.folder, path.Join(names...)) }

// alive tells whether a process is at work on the run, as far as that is known: of one in a bucket it is not.
func (w *Work) alive() bool {
	if w.path == "" {
		return false
	}
	entries, _ := os.ReadDir(filepath.Join(w.path, workers))
	for _, e := range entries {
		unlock, free, err := filelock.TryLockExisting(filepath.Join(w.path, workers, e.Name()))
		if err == nil && free {
			unlock()
		} else if _, gone := os.Lstat(filepath.Join(w.path, workers, e.Name())); gone == nil {
			return true
		}
	}
	return false
}

// Enter makes this process one of the run's, if check allows it: of several that come at once, each waits
// for the one before. Check is told whether others are at work. The caller calls leave at the end, which lets go of units that have
// no result. Output, unless it is "", is a file that processes of earlier versions write alone. Where one does it is an error.
func (w *Work) Enter(ctx context.Context, output string, check func(alive bool) error) (leave func(), err error) {
	if w.path == "" {
		return w.releaseUnits, check(false)
	}
	own := w.worker()
	unlock, err := w.door(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if output != "" {
		var free func()
		if free, err = outputs.Lock(output); err == nil {
			free()
		}
	}
	if err == nil {
		err = check(w.alive())
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(own), 0o777)
	}
	var release func()
	for free := false; err == nil && !free; { // who removes a finished run may just look at it
		release, free, err = filelock.TryLock(own)
	}
	if err != nil {
		w.tidy()
		return nil, err
	}
	return func() {
		w.releaseUnits()
		os.Remove(own)
		release()
		if unlock, err := w.door(context.WithoutCancel(ctx)); err == nil {
			defer unlock()
			w.tidy()
		}
	}, nil
}

// worker is the lock that this process holds while it is one of the run's.
func (w *Work) worker() string { return filepath.Join(w.path, workers, w.id) }

func (w *Work) releaseUnits() {
	for c := range w.held.Range {
		c.(*Claim).release()
	}
}

// door lets one process at a time come or leave.
func (w *Work) door(ctx context.Context) (unlock func(), err error) {
	for {
		unlock, err = filelock.Lock(ctx, filepath.Join(w.path, "door"), nil)
		if !errors.Is(err, fs.ErrNotExist) { // the last one that leaves takes the folder away
			return unlock, err
		}
	}
}

// tidy removes what has nothing in it, when no process is at work; one that was killed is not. The caller has the door.
func (w *Work) tidy() {
	filelock.Sweep(filepath.Join(w.path, workers), func(fs.DirEntry) bool { return true })
	if err := os.Remove(filepath.Join(w.path, workers)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, name := range []string{results, claims, notes} {
		os.Remove(filepath.Join(w.path, name))
	}
	if entries, err := os.ReadDir(w.path); err == nil && len(entries) == 1 && entries[0].Name() == "door" {
		os.Remove(filepath.Join(w.path, "door"))
	}
	for dir := w.path; dir != w.root && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		os.Remove(dir)
	}
}

// beginRun agrees on the settings of the run, once.
func (w *Work) beginRun(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun || w.OnBegin == nil {
		return nil
	}
	first, err := w.agree(ctx, w.Settings)
	if err == nil {
		err = w.OnBegin(ctx, first)
	}
	w.begun = err == nil
	return err
}

// agree stores what the processes of the run have to agree on, or returns what another has stored. Beginning a
// run and agreeing are one. It is ErrOver where this process has seen another run, which is finished now.
func (w *Work) agree(ctx context.Context, own []byte) (other []byte, err error) {
	for {
		id := rand.Text()
		err := w.store.Put(ctx, w.key(settings), bytes.NewReader(fmt.Appendf(nil, "%s\n%s", id, own)), objectstore.PutOptions{New: true})
		// Another goroutine may have seen the new run before this one.
		if err == nil && !w.run.CompareAndSwap(nil, &id) && *w.run.Load() != id {
			return nil, cmp.Or(w.store.Delete(ctx, w.key(settings)), ErrOver)
		}
		if !errors.Is(err, objectstore.ErrExists) {
			return nil, err
		}
		other, over, err := w.settings(ctx)
		switch {
		case err != nil:
			return nil, err
		case over:
			return nil, ErrOver
		case other != nil:
			return other, nil
		}
	}
}

// settings are what the processes have agreed on, nil where none has begun. Over tells that the run that was seen first is
// finished.
func (w *Work) settings(ctx context.Context) (text []byte, over bool, err error) {
	data, err := objectstore.Get(ctx, w.store, w.key(settings), maxResult)
	if errors.Is(err, objectstore.ErrNotExist) {
		return nil, w.run.Load() != nil, nil
	}
	if err != nil {
		return nil, false, err
	}
	first, text, _ := bytes.Cut(data, []byte("\n"))
	id := string(first)
	return text, !w.run.CompareAndSwap(nil, &id) && *w.run.Load() != id, nil
}

// Agreed is what the processes have agreed on, nil where none has begun, or one has finished the run.
func (w *Work) Agreed(ctx context.Context) ([]byte, error) {
	text, over, err := w.settings(ctx)
	if over {
		text = nil
	}
	return text, err
}

// over tells that a run which had begun is finished.
func (w *Work) over(ctx context.Context) (bool, error) {
	_, over, err := w.settings(ctx)
	return over, err
}

// seen notes the run that results are of.
func (w *Work) seen(ctx context.Context) error {
	if w.run.Load() != nil {
		return nil
	}
	_, _, err := w.settings(ctx)
	w.run.CompareAndSwap(nil, new(string)) // it is finished at this moment
	return err
}

// Note stores what this process says of itself, in the place of what it has said before.
func (w *Work) Note(ctx context.Context, text []byte) error {
	return w.store.Put(ctx, w.key(notes, w.id), bytes.NewReader(text), objectstore.PutOptions{})
}

// Notes are what processes have said of themselves.
func (w *Work) Notes(ctx context.Context) (all [][]byte, err error) {
	err = w.each(ctx, notes, func(_ string, text []byte) error {
		all = append(all, text)
		return nil
	})
	return all, err
}

// Results are those of all units that are done, by their names' order.
func (w *Work) Results(ctx context.Context, f func(name string, result []byte) error) error {
	return w.each(ctx, results, func(name string, result []byte) error {
		if err := w.seen(ctx); err != nil {
			return err
		}
		return f(name, result)
	})
}

func (w *Work) each(ctx context.Context, folder string, f func(name string, data []byte) error) error {
	list, err := w.store.List(ctx, w.key(folder))
	if err != nil {
		return err
	}
	for _, i := range list {
		data, err := objectstore.Get(ctx, w.store, i.Key, maxResult)
		switch {
		case errors.Is(err, objectstore.ErrNotExist): // finished meanwhile
			continue
		case errors.Is(err, objectstore.ErrDamaged): // is done again
			continue
		case err != nil:
			return err
		}
		if err := f(path.Base(i.Key), data); err != nil {
			return err
		}
	}
	return nil
}

// result is that of a unit, nil where it is not done.
func (w *Work) result(ctx context.Context, name string) ([]byte, error) {
	data, err := objectstore.Get(ctx, w.store, w.key(results, name), maxResult)
	if errors.Is(err, objectstore.ErrNotExist) || errors.Is(err, objectstore.ErrDamaged) {
		return nil, nil
	}
	if err == nil {
		err = w.seen(ctx)
	}
	return data, err
}

// Finish lets one process do what comes after the last unit, and removes the folder. Done is false where another
// has done it already.
func (w *Work) Finish(ctx context.Context, f func() error) (done bool, err error) {
	if err := w.beginRun(ctx); errors.Is(err, ErrOver) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	var claim *Claim
	for look := firstLook; ; look = min(2*look, lastLook) {
		if claim, err = w.claim(ctx, "finish"); !errors.Is(err, errTaken) {
			break
		}
		if err := patience.Sleep(ctx, look); err != nil {
			return false, err
		}
	}
	if err != nil {
		return false, err
	}
	defer claim.release()
	if over, err := w.over(ctx); err != nil || over {
		return false, err
	}
	if err := f(); err != nil {
		return false, err
	}
	return true, w.remove(ctx)
}

// remove removes what the processes have stored of the run.
func (w *Work) remove(ctx context.Context) error {
	err := w.store.Delete(ctx, w.key(settings)) // first: nobody begins a unit without
	for _, folder := range []string{results, notes} {
		list, listErr := w.store.List(ctx, w.key(folder))
		err = errors.Join(err, listErr)
		for _, i := range list {
			err = errors.Join(err, w.store.Delete(ctx, i.Key))
		}
	}
	if w.path != "" { // locks that killed processes have left
		filelock.Sweep(filepath.Join(w.path, claims), func(fs.DirEntry) bool { return true })
		filelock.Sweep(filepath.Join(w.path, workers), func(fs.DirEntry) bool { return true })
	}
	return err
}

// Discard removes what a run has left, so that this process begins another.
func (w *Work) Discard(ctx context.Context) error {
	err := w.remove(ctx)
	w.run.Store(nil)
	return err
}

// Claim is the right of this process to do a unit.
type Claim struct {
	work    *Work
	name    string
	ctx     context.Context
	unlock  func()             // on a disk
	claimed *objectstore.Claim // in a bucket
}

// claim takes a claim, or is errTaken.
func (w *Work) claim(ctx context.Context, name string) (*Claim, error) {
	c := &Claim{work: w, name: name, ctx: ctx}
	if w.path == "" {
		var err error
		c.claimed, err = w.Claims.Take(ctx, w.store, w.key(claims, name))
		if errors.Is(err, objectstore.ErrClaimed) {
			return nil, fmt.Errorf("%w: %w", errTaken, err)
		}
		return c, err
	}
	lock := filepath.Join(w.path, claims, name)
	unlock, free, err := filelock.TryLock(lock)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(lock), 0o777); err == nil {
			unlock, free, err = filelock.TryLock(lock)
		}
	}
	if err == nil && !free {
		err = errTaken
	}
	c.unlock = func() {
		os.Remove(lock) // before it is let go, so that nobody holds the lock of a file without a name
		unlock()
	}
	return c, err
}

// leaveWithin is how long what is stored after a cancel may take.
const leaveWithin = 20 * time.Second

// Finish stores the result of the unit and lets it go. The first one of a process begins the run: see Work.Settings.
func (c *Claim) Finish(ctx context.Context, result []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(leaveWithin, time.Duration(len(result))*time.Microsecond))
	defer cancel()
	defer c.release()
	if err := c.work.beginRun(ctx); err != nil {
		return err
	}
	if over, err := c.work.over(ctx); err != nil || over {
		return err // this process was held up for long: another has taken over and finished the run
	}
	if err := c.work.store.Put(ctx, c.work.key(results, c.name), bytes.NewReader(result), objectstore.PutOptions{}); err != nil {
		return err
	}
	return c.forget(ctx)
}

// forget lets go of a unit that is done: there is nothing left to claim.
func (c *Claim) forget(ctx context.Context) error {
	c.work.held.Delete(c)
	claim := c.claimed
	if c.claimed = nil; claim != nil {
		return claim.Remove(ctx)
	}
	c.release()
	return nil
}

// release lets the unit go; without a result it is free for others. It does nothing after Finish.
func (c *Claim) release() {
	c.work.held.Delete(c)
	switch {
	case c.unlock != nil:
		c.unlock()
		c.unlock = nil
	case c.claimed != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), leaveWithin)
		defer cancel()
		c.claimed.Release(ctx)
		c.claimed = nil
	}
}

// The time between two looks at what others do, which grows.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 2 * time.Second
)

// Wait waits for what other processes do, for so long that another look is worth it.
func Wait(ctx context.Context) error { return patience.Sleep(ctx, 10*firstLook) }
