package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Backups sends checkpoints to a folder of a store while a run goes on. Every one
// gets a name of its own, with its step; the newest two stay. While one is on its
// way only the newest of those that follow waits.
type Backups struct {
	store  Store
	folder string
	report func(step int, err error)

	ctx    context.Context
	cancel context.CancelFunc
	next   chan backup // at most one
	done   chan struct{}
}

type backup struct {
	step int
	file *os.File
}

const keepBackups = 2

// NewBackups starts sending. Report is told of every checkpoint that has arrived, or
// has not, from another goroutine. Close ends it.
func NewBackups(s Store, folder string, report func(step int, err error)) *Backups {
	b := &Backups{store: s, folder: folder, report: report, next: make(chan backup, 1), done: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	go b.runUploads()
	return b
}

// Add sends a file as the checkpoint of a step. The file may be replaced by another
// of its name meanwhile; what is sent is what it is now.
func (b *Backups) Add(step int, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	for {
		select {
		case b.next <- backup{step, f}:
			return nil
		case old := <-b.next:
			old.file.Close()
		}
	}
}

// Close waits until the newest checkpoint has arrived, as long as ctx lasts, and
// removes what is unfinished then. It is the last call.
func (b *Backups) Close(ctx context.Context) {
	close(b.next)
	stop := context.AfterFunc(ctx, b.cancel)
	defer stop()
	<-b.done
	b.cancel()
}

func (b *Backups) runUploads() {
	defer close(b.done)
	for next := range b.next {
		err := b.sendBackup(next)
		next.file.Close()
		b.report(next.step, err)
	}
}

func (b *Backups) sendBackup(n backup) error {
	info, err := n.file.Stat()
	if err != nil {
		return err
	}
	// Not as a new object: a run that was resumed comes by the same step again, with
	// the same content.
	key := Join(b.folder, fmt.Sprintf("%s%09d%s", backupPrefix, n.step, backupSuffix))
	if err := b.store.Put(b.ctx, key, io.NewSectionReader(n.file, 0, info.Size()), PutOptions{}); err != nil {
		return err
	}
	return b.prune(n.step)
}

// prune removes older checkpoints and what was left of their uploads. Steps beyond
// the one that has arrived are of a run that was given up.
func (b *Backups) prune(newest int) error {
	all, err := ListBackups(b.ctx, b.store, b.folder)
	if err != nil {
		return err
	}
	kept := 0
	var failed []error
	for _, o := range all {
		if o.Step <= newest && kept < keepBackups {
			kept++
			continue
		}
		failed = append(failed, b.store.Delete(b.ctx, o.Key), b.store.Sweep(b.ctx, o.Key))
	}
	return errors.Join(failed...)
}

// Backup is a checkpoint in a store.
type Backup struct {
	Step int
	Key  string
}

const backupPrefix, backupSuffix = "step-", ".state"

// ListBackups lists the checkpoints of a folder, the newest first. ErrNotExist if
// there is none.
func ListBackups(ctx context.Context, s Store, folder string) ([]Backup, error) {
	list, err := s.List(ctx, folder)
	if err != nil {
		return nil, err
	}
	var out []Backup
	for _, i := range list {
		digits, ok := strings.CutPrefix(path.Base(i.Key), backupPrefix)
		digits, suffix := strings.CutSuffix(digits, backupSuffix)
		if step, err := strconv.Atoi(digits); err == nil && ok && suffix {
			out = append(out, Backup{step, i.Key})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("checkpoints of %s: there are none: %w", s.URL(folder), fs.ErrNotExist)
	}
	slices.SortFunc(out, func(a, b Backup) int { return b.Step - a.Step })
	return out, nil
}
