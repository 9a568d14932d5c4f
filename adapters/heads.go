package adapters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/regularfile"
	"glimpse/model"
)

// maxHeadBudgets bounds a file of budgets of heads, in bytes.
const maxHeadBudgets = 64 << 20

// Shipped asks for what comes with the program.
const Shipped = "shipped"

// Heads are learned budgets of heads of a model.
type Heads struct {
	*eviction.HeadBudgets        // nil: the model has none
	FileSHA256            string // of the file
}

// errOtherModel is of budgets of heads that were learned for another model.
var errOtherModel = errors.New("learned for another model")

// ReadHeads reads the budgets of heads in a file, or with path "" those that ship for the model's weights, where there are any.
func ReadHeads(ctx context.Context, m *model.Model, path string) (Heads, error) {
	if path == "" {
		for path, raw := range HeadBudgets() {
			b, err := parseHeads(ctx, m, raw)
			if err != nil && !errors.Is(err, errOtherModel) {
				return b, fmt.Errorf("%s: %w", path, err)
			}
			if err == nil {
				return b, nil
			}
		}
		return Heads{}, nil
	}
	raw, err := regularfile.Read(path, maxHeadBudgets)
	if err == nil {
		var b Heads
		if b, err = parseHeads(ctx, m, raw); err == nil {
			return b, nil
		}
	}
	return Heads{}, fmt.Errorf("--heads %s: %w; want a file that \"train budgets\" has written, or one of: %s, %s", path, err, strings.Join(eviction.HeadSharings(), ", "), Shipped)
}

// parseHeads reads budgets of heads of the model. Its weights are hashed only where the shape fits.
func parseHeads(ctx context.Context, m *model.Model, raw []byte) (Heads, error) {
	b, err := eviction.ParseHeadBudgets(raw)
	if err != nil {
		return Heads{}, err
	}
	if err := b.Check(m, false); err != nil {
		return Heads{}, fmt.Errorf("%w: %w", errOtherModel, err)
	}
	sum, err := m.SHA256(ctx)
	if err != nil {
		return Heads{}, err
	}
	if sum != b.SHA256 {
		return Heads{}, fmt.Errorf("%w: %s with the weights %.12s…, want %.12s… as %s has", errOtherModel, b.Model, b.SHA256, sum, m.Name)
	}
	hash := sha256.Sum256(raw)
	return Heads{b, hex.EncodeToString(hash[:])}, nil
}
