package eviction

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Budget is how much of a prompt's cache is kept: a number of KV entries per KV head
// and layer, or a share of the prompt's tokens. The zero value is no budget.
//
// As text, in flags and in configurations, a whole number is entries, and a number with a
// decimal point or a percent sign is a share: "128" is 128 entries and "1" is one entry,
// "0.2" and "20%" are a fifth of the prompt, "1.0" and "100%" are all of it.
type Budget struct {
	pairs int
	share int // in millionths, so that no share is rounded; 0 where pairs counts
	whole int // prompts of fewer tokens keep everything
}

const (
	millionths = 1_000_000
	// shareDigits are the decimals of a share, percentDigits the decimals of a percentage.
	shareDigits, percentDigits = 6, 4
)

// Pairs is a budget of n pairs per KV head and layer.
func Pairs(n int) Budget { return Budget{pairs: n} }

// WholeBelow is the budget but for prompts of fewer than so many tokens, which keep everything. Its text is the budget's.
func (b Budget) WholeBelow(tokens int) Budget {
	b.whole = tokens
	return b
}

// Whole is the number of tokens below which a prompt keeps everything; 0 for none.
func (b Budget) Whole() int { return b.whole }

// ParseBudget reads what [Budget] describes. Shares are above 0 and at most 1, to a
// millionth.
func ParseBudget(text string) (Budget, error) {
	t := strings.TrimSpace(text)
	percent, isPercent := strings.CutSuffix(t, "%")
	digits := shareDigits
	if isPercent {
		digits = percentDigits
	}
	if !isPercent && !strings.Contains(t, ".") {
		n, err := strconv.Atoi(t)
		if errors.Is(err, strconv.ErrRange) {
			err = nil // and n the nearest that there is, which Check refuses
		}
		if err != nil {
			return Budget{}, fmt.Errorf("budget: got %.40q, want KV entries per KV head and layer, as 128, or a share of the prompt, as 10%% or 0.1", text)
		}
		b := Pairs(n)
		return b, b.Check()
	}
	share, ok := decimal(strings.TrimSpace(percent), digits)
	switch {
	case !ok:
		return Budget{}, fmt.Errorf("budget: got %.40q, want a share of the prompt, as 10%% or 0.1, to at most a millionth", text)
	case share == 0 || share > millionths:
		return Budget{}, fmt.Errorf("budget: got %.40q, want a share of the prompt above 0 and at most 100%%; a number of entries has no point", text)
	}
	return Budget{share: share}, nil
}

// decimal reads digits with at most places of them after the point, in units of the last
// place.
func decimal(text string, places int) (int, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	fraction = strings.TrimRight(fraction, "0")
	if strings.Trim(text, ".0123456789") != "" || strings.Trim(text, ".") == "" || len(fraction) > places {
		return 0, false
	}
	n, err := strconv.Atoi("0" + whole + fraction + strings.Repeat("0", places-len(fraction)))
	return n, err == nil
}

// ParseBudgets reads a comma-separated list without doubles.
func ParseBudgets(list string) ([]Budget, error) {
	var out []Budget
	for field := range strings.SplitSeq(list, ",") {
		b, err := ParseBudget(field)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, CheckBudgets(out)
}

// CheckBudgets is an error unless there are budgets, all usable and all different.
func CheckBudgets(budgets []Budget) error {
	if len(budgets) == 0 {
		return fmt.Errorf("budget: got none, want at least one")
	}
	for i, b := range budgets {
		if err := b.Check(); err != nil {
			return err
		}
		if slices.Contains(budgets[:i], b) {
			return fmt.Errorf("budget: %v twice", b)
		}
	}
	return nil
}

// Check is an error unless something is kept.
func (b Budget) Check() error {
	if b.share == 0 {
		return CheckBudget(b.pairs)
	}
	return nil
}

// Of is the number of pairs per KV head and layer that are kept of a prompt of so many
// tokens. A share is rounded down, so that no more than it is kept, but to at least 1.
func (b Budget) Of(tokens int) int {
	switch {
	case tokens < b.whole:
		return max(1, tokens)
	case b.share == 0:
		return b.pairs
	}
	return max(1, tokens*b.share/millionths)
}

// Share is the share of the prompt; 0 for a number of pairs.
func (b Budget) Share() float64 { return float64(b.share) / millionths }

// Describe is the number of pairs for a prompt of so many tokens, with the share where it
// comes from one: "128", "51 (10%)", or "40 (all of a short prompt)".
func (b Budget) Describe(tokens int) string {
	switch {
	case tokens < b.whole:
		return fmt.Sprintf("%d (all of a short prompt)", b.Of(tokens))
	case b.share == 0:
		return b.String()
	}
	return fmt.Sprintf("%d (%v)", b.Of(tokens), b)
}

// String is what ParseBudget reads back, shares as percentages.
func (b Budget) String() string {
	if b.share == 0 {
		return strconv.Itoa(b.pairs)
	}
	const percent = millionths / 100
	text := fmt.Sprintf("%d.%0*d", b.share/percent, percentDigits, b.share%percent)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "%"
}

// MarshalJSON writes pairs as a number and a share as a percentage in quotes: a number
// like 1.0 would not keep its point on the way through other programs.
func (b Budget) MarshalJSON() ([]byte, error) {
	if b.share == 0 {
		return json.Marshal(b.pairs)
	}
	return json.Marshal(b.String())
}

// UnmarshalJSON takes a string or a number; 0 is no budget, as MarshalJSON writes it.
func (b *Budget) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "0" {
		*b = Budget{}
		return nil
	}
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	return b.Set(text)
}

// Set makes a Budget a flag.
func (b *Budget) Set(text string) (err error) {
	*b, err = ParseBudget(text)
	return err
}

// Type is what help calls the flag's value.
func (*Budget) Type() string { return "budget" }

// SetScalar makes a Budget a value of a YAML configuration.
func (b *Budget) SetScalar(text string) error { return b.Set(text) }

// IsZero tells that there is no budget, as of the full cache.
func (b Budget) IsZero() bool { return b == Budget{} }

// Compare orders budgets: none, pairs ascending, shares ascending.
func (b Budget) Compare(other Budget) int {
	return cmp.Or(cmp.Compare(b.share, other.share), cmp.Compare(b.pairs, other.pairs))
}

// Budgets is a list that is also a flag, and a value of a YAML configuration, as one text
// with commas.
type Budgets []Budget

// Set reads a comma-separated list without doubles, which replaces the list.
func (b *Budgets) Set(text string) (err error) {
	*b, err = ParseBudgets(text)
	return err
}

// SetScalar is Set for a YAML configuration.
func (b *Budgets) SetScalar(text string) error { return b.Set(text) }

// Type is what help calls the flag's value.
func (*Budgets) Type() string { return "budgets" }

func (b *Budgets) String() string {
	var texts []string
	for _, x := range *b {
		texts = append(texts, x.String())
	}
	return strings.Join(texts, ",")
}
