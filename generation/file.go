package generation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"glimpse/datasets"
	"glimpse/internal/outputs"
	"glimpse/internal/signals"
	"glimpse/model"
)

// claimFile makes sure that the one file of the output may be written, by this run alone, and
// that nothing of an interrupted one is lost.
func (s *Job) claimFile() (unlock func(), err error) {
	for _, source := range s.Sources {
		s.Files.Input(source.Path)
	}
	unlock, err = outputs.Lock(s.Out)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	files := s.Files
	files.Replace = files.Replace || s.Resume // of a complete file, nothing is written over
	if err = files.Check("--out", s.Out); err == nil && !s.Resume && !s.Files.Replace {
		if info, gone := os.Stat(datasets.PartialOf(s.Out)); gone == nil && info.Size() > 0 {
			err = fmt.Errorf("--out: %s was begun and interrupted: go on with --resume, or begin again with --replace", s.Out)
		}
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// fillFile writes the one file of the output. What is finished of an interrupted one stays, for
// --resume.
func (s *Job) fillFile(ctx context.Context, m *model.Model, h datasets.PairHeader, log io.Writer) error {
	// A device, a FIFO or a link is written through.
	if info, err := os.Lstat(s.Out); err == nil && !info.Mode().IsRegular() {
		if s.Resume {
			return fmt.Errorf("generate: --resume: %s is no regular file", s.Out)
		}
		w, err := datasets.CreatePairs(s.Out, h)
		if err != nil {
			return err
		}
		defer w.Abort()
		if err := s.writePairs(ctx, m, w, 0, "", 0, s.Out, log); err != nil {
			return err
		}
		return w.Commit()
	}
	open := datasets.StartPairs
	if s.Resume {
		open = datasets.ResumePairs
	}
	w, err := open(s.Out, h)
	if errors.Is(err, datasets.ErrFinished) {
		fmt.Fprintf(log, "%s is finished already\n", s.Out)
		return nil
	}
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	defer w.Release()
	if w.Done > 0 {
		fmt.Fprintf(log, "%s goes on after %d samples\n", s.Out, w.Done)
	}
	err = s.writePairs(ctx, m, w, 0, w.Last, w.Done, s.Out, log)
	switch {
	case w.Written() == 0:
		defer w.Discard()
	case err != nil:
		err = fmt.Errorf("%d finished samples of %s are kept, and the same command with --resume goes on: %w", w.Written(), s.Out, err)
		if ctx.Err() != nil {
			return signals.Resumable(err)
		}
	}
	if err != nil {
		return err
	}
	return w.Commit()
}
