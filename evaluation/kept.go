package evaluation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
)

// KeptSchema is the version of Kept as JSON.
const KeptSchema = "glimpse.kept/1"

// Kept is what every cell keeps of a sample's first prompt.
type Kept struct {
	Schema  string     `json:"schema"`
	Model   string     `json:"model"`
	Task    string     `json:"task"`
	Index   int        `json:"index"`
	Sample  string     `json:"sample"`
	Layers  int        `json:"layers"`
	KVHeads int        `json:"kv_heads"`
	Tokens  []string   `json:"tokens"` // of the prompt, as people read them
	Cells   []KeptCell `json:"cells"`
}

// KeptCell is what one cell keeps.
type KeptCell struct {
	Policy  string `json:"policy"`
	Adapter string `json:"adapter,omitempty"`
	Budget  string `json:"budget,omitempty"` // "" for the full cache
	// Shares has a digit of KeptDigits for every token, by the share of all KV heads that
	// keep it. The first digit is none of them, the last is all.
	Shares string `json:"shares"`
}

// Named is the cell without what it keeps.
func (c KeptCell) Named() KeptCell {
	return KeptCell{Policy: c.Policy, Adapter: c.Adapter, Budget: c.Budget}
}

// Label names policy and adapter.
func (c KeptCell) Label() string { return engine.NameWithAdapter(c.Policy, c.Adapter) }

// KeptDigits are the digits of KeptCell.Shares, in their order.
const KeptDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// maxKept bounds Kept: the digits of all cells.
const maxKept = 8 << 20

// keptOf takes down the choices of a study; nil where the prompt is too long for that.
func keptOf(m *model.Model, study *eviction.Study, budgets int, cells []Cell) *Kept {
	ids := study.Prompt.Tokens
	if len(ids)*len(cells) > maxKept {
		return nil
	}
	k := &Kept{Schema: KeptSchema, Model: m.Name, Layers: m.Config.Layers, KVHeads: m.Config.KVHeads, Tokens: m.Texts(ids)}
	for _, c := range cells {
		choice := study.Choices[c.policy*budgets+c.budget]
		shares := make([]byte, len(ids))
		for i, n := range eviction.KeptCounts(choice.Kept, len(ids)) {
			shares[i] = keptDigit(n, k.Layers*k.KVHeads)
		}
		k.Cells = append(k.Cells, KeptCell{c.Title(), c.Adapter, c.BudgetName(), string(shares)})
	}
	return k
}

// keptDigit rounds n of so many heads; only none and all are the ends.
func keptDigit(n, heads int) byte {
	const last = len(KeptDigits) - 1
	switch {
	case n <= 0:
		return KeptDigits[0]
	case n >= heads:
		return KeptDigits[last]
	}
	at := int(math.Round(float64(n) / float64(heads) * float64(last)))
	return KeptDigits[min(max(at, 1), last-1)]
}

// DecodeKept reads one Kept and refuses what no run writes.
func DecodeKept(line []byte) (*Kept, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	k := new(Kept)
	if err := d.Decode(k); err != nil {
		return nil, err
	}
	if k.Schema != KeptSchema {
		return nil, fmt.Errorf("schema %.100q, want %q", k.Schema, KeptSchema)
	}
	if k.Index < 0 || k.Layers < 1 || k.KVHeads < 1 || len(k.Tokens) == 0 {
		return nil, errors.New("a sample without layers, heads or tokens")
	}
	for _, c := range k.Cells {
		if len(c.Shares) != len(k.Tokens) || strings.Trim(c.Shares, KeptDigits) != "" {
			return nil, fmt.Errorf("%.100q: want a digit for each of %d tokens", c.Label(), len(k.Tokens))
		}
	}
	return k, nil
}
