package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"glimpse/internal/collective"
	"glimpse/kernels"
)

// together is the error of a run that all ranks have ended after the same step: none of
// them has to be told, and rank 0 has the time it takes to save the state.
type together struct{ error }

func (t together) Unwrap() error { return t.error }

// onRanks runs f as one of the ranks that a launcher has started, or alone. What goes wrong on
// one of them ends all.
func (s *Spec) onRanks(ctx context.Context, f func(ctx context.Context) error) error {
	var err error
	if s.ranks, err = collective.World(); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if err := f(ctx); errors.As(err, new(together)) {
		return errors.Join(err, s.ranks.Close())
	} else if err != nil {
		s.ranks.Fail(err)
		return err
	}
	return s.ranks.Close()
}

// Writes tells whether this process is the one of its run that writes.
func (s *Spec) Writes() bool { return s.ranks == nil || s.ranks.Rank() == 0 }

// rankDevice is where this rank computes: ranks of one machine that are to choose
// take its devices in turn.
func (s *Spec) rankDevice() string {
	if s.Device != "auto" || s.ranks.Size() == 1 {
		return s.Device
	}
	chosen, _ := kernels.ChooseDevice(s.Device)
	if n := len(kernels.Devices().Devices); strings.HasPrefix(chosen, "cuda:") && n > 0 {
		return fmt.Sprintf("cuda:%d", s.ranks.Local()%n)
	}
	return chosen
}
