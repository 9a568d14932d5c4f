package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/training"
)

// exportTarget is where adapter i is exported to, "" for nowhere.
func (s *Spec) exportTarget(i int) string {
	if s.Export == "" || len(s.Adapters) == 1 {
		return s.Export
	}
	return training.Below(s.Export, s.Adapters[i].name())
}

// checkTargets makes sure that the adapters can be written where they are wanted. A
// run whose steps were all done before may find what it wrote before it was killed:
// that is compared when it is written again.
func (s *Spec) checkTargets(ctx context.Context, finished bool) error {
	for i, dir := range s.Outs {
		for _, target := range []string{dir, s.exportTarget(i)} {
			if target == "" {
				continue
			}
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) && s.ownFolder(target) {
				continue // the run makes the folder's parents
			}
			replace := s.Replace && !objectstore.IsURL(target)
			err := objectstore.CheckAdapterTarget(ctx, target, replace, s.S3)
			if err != nil && !(finished && errors.Is(err, fs.ErrExist)) {
				if errors.Is(err, fs.ErrExist) && !replace && !objectstore.IsURL(target) {
					return fmt.Errorf("%w: write over it with --replace, or name another folder", err)
				}
				return err
			}
		}
	}
	return nil
}

// deliver writes adapter i to its folder, and to where it is exported.
func (s *Spec) deliver(ctx context.Context, i int, a *checkpoints.Adapter, log, out io.Writer, what string) error {
	for _, target := range []string{s.Outs[i], s.exportTarget(i)} {
		if target == "" {
			continue
		}
		replace := s.Replace && !objectstore.IsURL(target)
		if err := training.WriteAdapter(ctx, target, a, replace, s.S3, log, out, what); err != nil {
			return err
		}
	}
	return nil
}
