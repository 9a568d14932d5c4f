package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/internal/atomicfile"
	"glimpse/internal/outputs"
	"glimpse/internal/signals"
	"glimpse/jobs"
	"glimpse/training"
)

// uploadPatience bounds the wait for the last checkpoint's upload when a run ends.
const uploadPatience = 2 * time.Minute

// checkpointer saves the state of one run.
type checkpointer struct {
	path   string // "" keeps nothing
	every  int
	hash   string // of the model's weights
	log    io.Writer
	upload *objectstore.Backups // nil: the state stays on this machine
	unlock func()
	told   bool // that a signal has ended the run
	writes bool // this is the rank that saves
}

// openCheckpoint takes the checkpoint for this run alone, and goes on from it where
// that is asked for.
func (s *Spec) openCheckpoint(ctx context.Context, t *training.Trainer, hash string, log io.Writer) (*checkpointer, error) {
	k := &checkpointer{path: s.Checkpoint, every: s.CheckpointEvery, hash: hash, log: log, writes: s.Writes()}
	if err := cmp.Or(
		jobs.Refuse(s.Checkpoint == "" && s.Resume, "train: --resume needs --checkpoint"),
		jobs.Refuse(s.Checkpoint == "" && s.Upload != "", "train: --upload needs --checkpoint"),
		jobs.Refuse(s.CheckpointEvery < 1, "train: --checkpoint-every: got %d, want at least 1", s.CheckpointEvery),
	); err != nil {
		return nil, err
	}
	if s.Checkpoint == "" || !k.writes {
		return k, nil
	}
	if err := k.lock(); err != nil {
		return nil, err
	}
	err := s.resumeFrom(ctx, k, t)
	if err == nil && s.Upload != "" {
		err = k.openUpload(ctx, s)
	}
	if err != nil {
		k.unlock()
		return nil, err
	}
	return k, nil
}

// openUpload opens where copies of the checkpoints go.
func (k *checkpointer) openUpload(ctx context.Context, s *Spec) error {
	store, folder, err := objectstore.Open(ctx, s.Upload, s.S3)
	if err == nil {
		_, err = store.List(ctx, folder) // a wrong name or key is known now, not in an hour
	}
	if err != nil {
		return fmt.Errorf("train: --upload: %w", err)
	}
	k.upload = objectstore.NewBackups(store, folder, func(step int, err error) {
		if err != nil {
			fmt.Fprintf(k.log, "the checkpoint of step %d was not uploaded: %v\n", step, err)
		} else {
			fmt.Fprintf(k.log, "the checkpoint of step %d is in %s\n", step, s.Upload)
		}
	})
	return nil
}

// lock keeps a second run from the checkpoint, and removes what a killed one left of
// it.
func (k *checkpointer) lock() error {
	if err := os.MkdirAll(filepath.Dir(k.path), 0o755); err != nil {
		return fmt.Errorf("train: folder of the checkpoint: %w", err)
	}
	unlock, err := outputs.Lock(k.path)
	if err != nil {
		return fmt.Errorf("train: checkpoint %w", err)
	}
	k.unlock = unlock
	if err := atomicfile.Sweep(k.path); err != nil {
		k.unlock()
		return err
	}
	return nil
}

// resumeFrom goes on from the checkpoint, the one before it where that is damaged, or the
// newest that was uploaded where there is none on this machine.
func (s *Spec) resumeFrom(ctx context.Context, k *checkpointer, t *training.Trainer) error {
	if !s.Resume {
		for _, path := range []string{k.path, checkpoints.PreviousState(k.path)} {
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("train: checkpoint %s exists: go on from it with --resume, or remove it", path)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	from, note, err := t.ResumeLatest(k.path, k.hash)
	if errors.Is(err, fs.ErrNotExist) && s.Upload != "" {
		check := func(path string) error { return t.Resume(path, k.hash) }
		from = s.Upload
		_, err = objectstore.FetchCheckpoint(ctx, s.Upload, k.path, s.S3, check, k.log)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a run that never came to its first checkpoint starts anew
	}
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(k.log, note)
	}
	fmt.Fprintf(k.log, "going on after step %d of %s\n", t.Done(), from)
	return nil
}

// due tells whether a step ends with a checkpoint.
func (k *checkpointer) due(step training.StepResult, steps int) bool {
	return k.path != "" && (step.Step%k.every == 0 || step.Step == steps || step.Stopped)
}

// save writes a checkpoint, and sends it where that is asked for.
func (k *checkpointer) save(t *training.Trainer) error {
	if !k.writes {
		return nil
	}
	if err := t.Save(k.path, k.hash); err != nil {
		if _, statErr := os.Stat(k.path); statErr == nil {
			return fmt.Errorf("%w; the checkpoint before it is still there: make room and go on with --resume", err)
		}
		return err
	}
	if k.upload != nil {
		return k.upload.Add(t.Done(), k.path)
	}
	return nil
}

// waitUploads waits for the last upload and lets the checkpoint go. A signal ends the wait; one
// that came before has ended the run, whose state is still sent.
func (k *checkpointer) waitUploads(ctx context.Context) {
	if k.upload != nil {
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), uploadPatience)
		defer cancel()
		if ctx.Err() == nil {
			defer context.AfterFunc(ctx, cancel)()
		}
		told := time.AfterFunc(5*time.Second, func() {
			fmt.Fprintln(k.log, "waiting for the upload of the last checkpoint; a signal ends the wait, the checkpoint on this machine stays")
		})
		defer told.Stop()
		k.upload.Close(wait)
		k.upload = nil
	}
	if k.unlock != nil {
		k.unlock()
		k.unlock = nil
	}
}

// stepsContext is the context of the steps. Where there is a checkpoint, a signal lets the
// step finish: onStep then ends the run.
func (k *checkpointer) stepsContext(ctx context.Context) (steps context.Context, done func()) {
	if k.path == "" {
		return ctx, func() {}
	}
	stop := context.AfterFunc(ctx, func() {
		fmt.Fprintln(k.log, "stopping when this step is done and saved; a second signal stops at once")
	})
	return context.WithoutCancel(ctx), func() { stop() }
}

// stopped is the error of a run that a signal has ended with its state saved.
func (k *checkpointer) stopped(t *training.Trainer, err error) error {
	k.told = true
	return signals.Resumable(fmt.Errorf("stopped after step %d, which is saved in %s; the same command with --resume goes on: %w", t.Done(), k.path, err))
}

// interrupted is what an error after the last step means: where a signal ended the
// run, nothing is lost.
func (k *checkpointer) interrupted(t *training.Trainer, err error) error {
	if err != nil && k.path != "" && !k.told && errors.Is(err, context.Canceled) {
		return k.stopped(t, err)
	}
	return err
}
