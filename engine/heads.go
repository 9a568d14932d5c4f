package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"

	"glimpse/adapters"
	"glimpse/eviction"
)

// addHeadBudgets reads the learned budgets of heads in the file that is asked for, or else those that ship for the model's
// weights, if any.
func (m *Model) addHeadBudgets(ctx context.Context) (err error) {
	asked := m.asked.Heads
	if asked != "" && asked != Shipped && !slices.Contains(eviction.HeadSharings(), asked) {
		raw, err := os.ReadFile(asked)
		if err == nil {
			err = m.readHeadBudgets(ctx, raw)
		}
		if err != nil {
			return fmt.Errorf("--heads %s: %w; want a file that \"train budgets\" has written, or one of: %s, %s", asked, err, strings.Join(eviction.HeadSharings(), ", "), Shipped)
		}
		return nil
	}
	for path, raw := range adapters.HeadBudgets() {
		b, err := eviction.ParseHeadBudgets(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if b.Check(m.Model, false) != nil { // of a model of another shape, whose weights need not be hashed
			continue
		}
		if sum, err := m.SHA256(ctx); err != nil {
			return err
		} else if sum == b.SHA256 {
			m.budgets, m.budgetsSum = b, sumOf(raw)
		}
	}
	if m.budgets == nil && (asked == Shipped || asked == eviction.LearnedHeads) {
		return fmt.Errorf("--heads %s: no budgets of heads come with this program for the weights of %s; \"train budgets\" learns some", asked, m.Name)
	}
	return nil
}

// readHeadBudgets reads budgets of heads, which must be of the model's weights.
func (m *Model) readHeadBudgets(ctx context.Context, raw []byte) error {
	b, err := eviction.ParseHeadBudgets(raw)
	if err != nil {
		return err
	}
	if err := b.Check(m.Model, false); err != nil {
		return err
	}
	sum, err := m.SHA256(ctx)
	if err == nil && sum != b.SHA256 {
		err = fmt.Errorf("learned for %s with the weights %.12s…, want %.12s… as %s has", b.Model, b.SHA256, sum, m.Name)
	}
	m.budgets, m.budgetsSum = b, sumOf(raw)
	return err
}

func sumOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// sharing adds to the options of a policy how its heads share the budget, as Options.Heads says, unless they say it.
func (m *Model) sharing(policy string, overrides eviction.Overrides) eviction.Overrides {
	how := m.asked.Heads
	if how == "" {
		return overrides
	}
	at := slices.Index(eviction.HeadSharings(), how)
	if at < 0 {
		at = slices.Index(eviction.HeadSharings(), eviction.LearnedHeads)
	}
	first, _, _ := strings.Cut(policy, ":")
	return merged(eviction.Overrides{first: {eviction.HeadsOption: float64(at)}}, overrides)
}
