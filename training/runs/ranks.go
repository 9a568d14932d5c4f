package runs

import (
	"context"
	"fmt"
	"io"

	"glimpse/internal/collective"
)

// onRanks runs f as one of the ranks that a launcher has started, or alone. What goes wrong on
// one of them ends all.
func (s *Spec) onRanks(ctx context.Context, log io.Writer, f func(ctx context.Context) error) error {
	s.ranks = nil
	err := collective.OnRanks(log, func(g collective.Group) error {
		s.ranks = g
		return f(ctx)
	})
	if s.ranks == nil { // there are none
		return fmt.Errorf("train: %w", err)
	}
	return err
}

// Writes tells whether this process is the one of its run that writes.
func (s *Spec) Writes() bool { return s.ranks == nil || s.ranks.Rank() == 0 }
