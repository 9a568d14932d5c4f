package report

import (
	"fmt"
	"slices"

	"glimpse/evaluation"
)

// Bounds of the kept entries that are shown.
const (
	maxKeptSamples = 4    // of a section
	maxKeptTokens  = 4096 // of a prompt; of a longer one both ends
)

// KeptView is what the policies in colour, and the oracle, keep of a prompt.
type KeptView struct {
	Task, Sample string
	About        string
	Tokens       []KeptToken
	Data         KeptData
}

// KeptToken is a token on the page, which the page's script shades.
type KeptToken struct {
	Text    string
	Skipped int // so many tokens are left out before it
}

// KeptData is what the page's script shades tokens by.
type KeptData struct {
	Digits string     `json:"digits"`
	From   []int      `json:"from"` // position of the first token, and of the first after the gap
	Cut    int        `json:"cut"`  // index of the first token after the gap
	Cells  []KeptCell `json:"cells"`
}

// KeptCell is one policy at one budget.
type KeptCell struct {
	Policy string `json:"policy"`
	Budget string `json:"budget"`
	Shares string `json:"shares"`
}

// keptViews are the views of the first sample of the first tasks.
func (s *Section) keptViews(all []*evaluation.Kept) []*KeptView {
	var out []*KeptView
	for _, k := range all {
		if k.Model != s.Model || !slices.Contains(s.tasks, k.Task) || len(out) == maxKeptSamples {
			continue
		}
		if slices.ContainsFunc(out, func(v *KeptView) bool { return v.Task == k.Task }) && len(s.tasks) > maxKeptSamples {
			continue // rather another task
		}
		if v := s.keptView(k); v != nil {
			out = append(out, v)
		}
	}
	return out
}

func (s *Section) keptView(k *evaluation.Kept) *KeptView {
	n := len(k.Tokens)
	head, tail := n, n
	if n > maxKeptTokens {
		head, tail = maxKeptTokens/2, n-maxKeptTokens/2
	}
	v := &KeptView{Task: k.Task, Sample: k.Sample, About: fmt.Sprintf("%d tokens, %d heads in %d layers", n, k.Layers*k.KVHeads, k.Layers),
		Data: KeptData{Digits: evaluation.KeptDigits, From: []int{0, tail}, Cut: head}}
	for _, label := range s.order {
		if !s.chosen(label) && label != "oracle" {
			continue
		}
		for _, b := range s.budgets {
			for _, c := range k.Cells {
				if c.Label() == label && c.Budget == b.String() {
					v.Data.Cells = append(v.Data.Cells, KeptCell{label, budgetName(b), c.Shares[:head] + c.Shares[tail:]})
				}
			}
		}
	}
	if len(v.Data.Cells) == 0 {
		return nil
	}
	for i, text := range append(slices.Clone(k.Tokens[:head]), k.Tokens[tail:]...) {
		t := KeptToken{Text: text}
		if i == head {
			t.Skipped = tail - head
		}
		v.Tokens = append(v.Tokens, t)
	}
	return v
}
