package eviction

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"glimpse/model"
)

// headsOption is every policy's that leaves it open how a budget is shared out over KV heads. All of them keep the same
// number of entries over all layers and heads.
var headsOption = Option{Name: HeadsOption, Choices: HeadSharings, Doc: "how the KV heads of all layers share the budget: each has the same; those of a layer have one ranking (Ada-KV, arXiv:2407.11550, algorithm 1, without a floor); all have one ranking (KVzip, arXiv:2505.23416, §3.3); or as the model's learned budgets say (--heads)"}

// HeadsOption is the name of the option of every policy that says how its heads share the budget, LearnedHeads the value by
// which they share it as was learned.
const (
	HeadsOption  = "head-budgets"
	LearnedHeads = "learned"
)

// HeadSharings are the values of HeadsOption.
func HeadSharings() []string { return []string{"equal", "layer", "global", LearnedHeads} }

// Their places.
const (
	headsEqual = iota
	headsLayer
	headsGlobal
	headsLearned
)

// HeadSharing is the value of HeadsOption that the policy has, "equal" where it shares its budget out itself.
func (n *Configured) HeadSharing() string { return HeadSharings()[n.Settings.Int(HeadsOption)] }

// withHeads shares a method's budgets out over the KV heads.
func withHeads(m Method, how int, learned *HeadBudgets) Method {
	if how == headsEqual {
		return m
	}
	return headMethod{m, how, learned}
}

// headMethod is a method whose heads share what they keep.
type headMethod struct {
	Method
	how     int
	learned *HeadBudgets
}

// Plan is the method's own, with budgets of heads in it.
func (m headMethod) Plan(p Prompt) Plan {
	plan := m.Method.Plan(p)
	switch m.how {
	case headsLayer:
		plan.Heads = func(_, budget int, s *Scores) []int { return adaptive{}.shares(s, budget, plan.Sink, plan.Recent) }
	case headsGlobal:
		plan.Global = true
	case headsLearned:
		p.Budget = plan.headBudget(p.Budget)
		budgets := m.learned.of(p, plan.protect(p))
		plan.Heads = func(layer, _ int, _ *Scores) []int { return budgets[layer] }
	}
	return plan
}

// What every head keeps of a prompt where budgets are learned, however little its share is. Without it most heads of a model
// keep nothing at all at a twentieth of the cache, not even the question. A context has no question, and the shares alone do as well
// or better there.
const (
	leastSink   = 4   // first entries (StreamingLLM, arXiv:2309.17453, §3.2)
	leastRecent = 32  // last entries, of a quarter of the budget at most (SnapKV's window, arXiv:2404.14469, §4.2)
	equalShare  = 0.2 // of the rest of the budget (Ada-KV's safeguard, arXiv:2407.11550, §3.2)
)

// protect protects the first and the last entries of every head but of contexts, and returns how many entries a head keeps at least.
func (p *Plan) protect(of Prompt) int {
	if of.Context {
		return p.Sink + p.Recent
	}
	_, budget := of.extent()
	p.Sink, p.Recent = max(p.Sink, leastSink), max(p.Recent, min(leastRecent, budget/4))
	protected := p.Sink + p.Recent
	return protected + int(equalShare*float64(max(0, budget-protected)))
}

// sharesHeads tells that a plan says itself what layers and heads get, or how they go on after the prompt.
func (p *Plan) sharesHeads() bool {
	return p.Layers != nil || p.CrossLayer != nil || p.Heads != nil || p.Select != nil || p.Decode != nil && !p.HoldsHeads
}

// ErrSharesHeads is of a policy that says itself what layers and heads get.
var ErrSharesHeads = errors.New("it shares its budget out itself")

// checkHeads refuses an option that a policy cannot take, and learned budgets that are missing.
func checkHeads(name string, m Method, how int, learned *HeadBudgets) error {
	if how == headsEqual {
		return nil
	}
	if plan := m.Plan(tinyPrompt()); plan.sharesHeads() || plan.KeepsAll {
		return fmt.Errorf("policy %s: option %s: %w, want %s", name, headsOption.Name, ErrSharesHeads, headsOption.Choices()[headsEqual])
	}
	if how == headsLearned && learned == nil {
		return fmt.Errorf("policy %s: option %s: the model has no learned budgets of heads; \"train budgets\" learns some", name, headsOption.Name)
	}
	return nil
}

// globalBudgets share the budget of all layers that are decided about out by one ranking of all their scores: beside the
// protected entries of each head, the highest scores are kept, of equal ones those of the lower layer, head and position.
// budgets are nil of layers without scores.
func (p *Plan) globalBudgets(scores []*Scores, budget int) (budgets [][]int) {
	type candidate struct {
		score       float32
		layer, head int
	}
	var all []candidate
	budgets = make([][]int, len(scores))
	rest := 0
	for l, s := range scores {
		if s == nil {
			continue
		}
		rows := s.Rows()
		budgets[l] = make([]int, len(s.Entries))
		for h, n := range s.Entries {
			own := min(p.Sink+p.Recent, budget, n)
			budgets[l][h] = own
			rest += budget - own
			if rows == nil { // numbers are counted alone, and no ranking is known
				budgets[l][h], rest = min(budget, n), 0
				continue
			}
			for _, x := range rows[h][min(p.Sink, n):max(min(p.Sink, n), n-p.Recent)] {
				if x != x { // as kernels.Selector has it
					x = float32(math.Inf(-1))
				}
				all = append(all, candidate{x, l, h})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	for _, c := range all[:min(rest, len(all))] {
		budgets[c.layer][c.head]++
	}
	return budgets
}

// HeadBudgets are what share of a context each KV head keeps, learned once for a model: by one ranking over all layers and
// heads of the scores of a policy that knows what will be read (KVzip, arXiv:2505.23416, §3.3, a static variant of it), the
// mean over contexts. Any policy can rank within the heads.
type HeadBudgets struct {
	Model   string       `json:"model"`   // for people
	SHA256  string       `json:"sha256"`  // of the model's weights
	Label   string       `json:"label"`   // the policy whose ranking they are the mean of, with its options
	Samples int          `json:"samples"` // contexts
	Tokens  int          `json:"tokens"`  // of all contexts
	Budgets []HeadShares `json:"budgets"` // by ascending budget
}

// HeadShares are the shares at one budget.
type HeadShares struct {
	Budget float64     `json:"budget"` // share of the context that heads keep in the mean, above 0, below 1
	Heads  [][]float64 `json:"heads"`  // [layer][kvHead] share that the head keeps, 0 to 1; null of layers that are not decided about
}

// EqualHeads are budgets of which every head has the same.
func EqualHeads(m *model.Model) *HeadBudgets {
	const half = 0.5
	heads := make([][]float64, m.Config.Layers)
	for l := range heads {
		heads[l] = slices.Repeat([]float64{half}, m.Config.KVHeads)
	}
	return &HeadBudgets{Budgets: []HeadShares{{half, heads}}}
}

// extent are how many entries there are, and how many of them a head keeps in the mean.
func (p Prompt) extent() (entries, budget int) {
	entries = max(p.Entries, p.From+len(p.Tokens))
	return entries, min(p.Budget, entries)
}

// of are the budgets of a prompt [layer][kvHead], nil of layers that it does not decide about. Every head keeps least
// entries at least; what is left is shared out, between two known budgets in proportion. They sum to
// the prompt's budget times the heads.
func (b *HeadBudgets) of(p Prompt, least int) [][]int {
	out := make([][]int, p.Config.Layers)
	n, budget := p.extent()
	least = min(least, budget)
	if budget == n || n == least {
		for _, l := range p.layers() {
			out[l] = slices.Repeat([]int{budget}, p.Config.KVHeads)
		}
		return out
	}
	share := float64(budget-least) / float64(n-least)
	low, high, t := b.around(share)
	var shares []float64
	sum := 0.0
	for _, l := range p.layers() {
		for h := range p.Config.KVHeads {
			x := low(l, h) + t*(high(l, h)-low(l, h))
			shares, sum = append(shares, x), sum+x
		}
	}
	// Layers that the budgets were learned with and this prompt does not decide about would change the mean.
	pool := float64(budget-least) * float64(len(shares))
	fill(shares, pool, float64(n-least), sum)
	whole := apportion(shares)
	for i, l := range p.layers() {
		out[l] = whole[i*p.Config.KVHeads:][:p.Config.KVHeads]
		for h := range out[l] {
			out[l][h] += least
		}
	}
	return out
}

// around are the shares of heads at the known budgets below and above a share, and how far it lies between them. At 0
// every head keeps nothing, at 1 everything.
func (b *HeadBudgets) around(share float64) (low, high func(l, h int) float64, t float64) {
	at := func(i int) (float64, func(l, h int) float64) {
		switch {
		case i < 0:
			return 0, func(int, int) float64 { return 0 }
		case i == len(b.Budgets):
			return 1, func(int, int) float64 { return 1 }
		}
		return b.Budgets[i].Budget, func(l, h int) float64 { return b.Budgets[i].Heads[l][h] }
	}
	i := 0
	for i < len(b.Budgets) && b.Budgets[i].Budget < share {
		i++
	}
	from, low := at(i - 1)
	to, high := at(i)
	return low, high, (share - from) / (to - from)
}

// At are the shares of heads [layer][kvHead] at a budget, between two known ones in proportion; nil of layers that are not decided about.
func (b *HeadBudgets) At(share float64) [][]float64 {
	low, high, t := b.around(share)
	out := make([][]float64, len(b.Budgets[0].Heads))
	for l, heads := range b.Budgets[0].Heads {
		for h := range heads {
			out[l] = append(out[l], low(l, h)+t*(high(l, h)-low(l, h)))
		}
	}
	return out
}

// fill scales shares so that they sum to pool where none is above most: what one cannot take goes to the others in proportion.
func fill(shares []float64, pool, most, sum float64) {
	full := make([]bool, len(shares))
	for {
		factor, again := pool/sum, false
		if sum <= 0 { // all that is left goes to heads with no share, equally
			open := 0
			for i := range shares {
				if !full[i] {
					open++
				}
			}
			for i := range shares {
				if !full[i] {
					shares[i] = min(most, pool/float64(open))
				}
			}
			return
		}
		for i, x := range shares {
			if !full[i] && x*factor > most {
				full[i], again = true, true
				shares[i] = most
				pool -= most
				sum -= x
			}
		}
		if !again {
			for i := range shares {
				if !full[i] {
					shares[i] *= factor
				}
			}
			return
		}
	}
}

// Check is an error unless the budgets are whole and of the shape of m, whose windows may be evicted, too. Whether they are of its weights is for who reads them
// to tell (SHA256).
func (b *HeadBudgets) Check(m *model.Model, windows bool) error {
	c := &m.Config
	if len(b.Budgets) == 0 {
		return fmt.Errorf("budgets of heads: got none, want at least one")
	}
	before := 0.0
	for _, at := range b.Budgets {
		if !(at.Budget > before && at.Budget < 1) {
			return fmt.Errorf("budgets of heads: budget %v: want shares above 0 and below 1 that ascend", at.Budget)
		}
		before = at.Budget
		if len(at.Heads) != c.Layers {
			return fmt.Errorf("budgets of heads: budget %v: got %d layers, want %d as %s has", at.Budget, len(at.Heads), c.Layers, m.Name)
		}
		for l, heads := range at.Heads {
			if heads == nil && (Prompt{Config: c, Windows: windows}).decides(l) || heads != nil && len(heads) != c.KVHeads {
				return fmt.Errorf("budgets of heads: budget %v: layer %d: got %d KV heads, want %d as %s has", at.Budget, l, len(heads), c.KVHeads, m.Name)
			}
			for h, x := range heads {
				if !(x >= 0 && x <= 1) {
					return fmt.Errorf("budgets of heads: budget %v: layer %d, head %d: got %v, want 0 to 1", at.Budget, l, h, x)
				}
			}
		}
	}
	return nil
}

// ParseHeadBudgets reads the file that HeadBudgets.Encode writes. Whether they fit a model is for Check to tell.
func ParseHeadBudgets(raw []byte) (*HeadBudgets, error) {
	var f headBudgetsFile
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("budgets of heads: %w", err)
	}
	if f.Format != headBudgetsFormat || f.Version != 1 {
		return nil, fmt.Errorf("budgets of heads: got format %.40q, version %d, want %q, version 1", f.Format, f.Version, headBudgetsFormat)
	}
	return &f.HeadBudgets, nil
}

// Encode renders a budgets.json. The same budgets always give the same bytes.
func (b *HeadBudgets) Encode() ([]byte, error) {
	out := *b
	for i, at := range b.Budgets { // to four digits: more are noise of the samples
		heads := make([][]float64, len(at.Heads))
		for l, shares := range at.Heads {
			for _, x := range shares {
				heads[l] = append(heads[l], math.Round(x*1e4)/1e4)
			}
		}
		if i == 0 {
			out.Budgets = nil
		}
		out.Budgets = append(out.Budgets, HeadShares{at.Budget, heads})
	}
	raw, err := json.MarshalIndent(headBudgetsFile{headBudgetsFormat, 1, out}, "", " ")
	return rowOfNumbers.ReplaceAllFunc(raw, func(row []byte) []byte { return bytes.Join(bytes.Fields(row), nil) }), err
}

// rowOfNumbers is a layer's shares, which stand on one line.
var rowOfNumbers = regexp.MustCompile(`\[[\s\d.,e-]+\]`)

const headBudgetsFormat = "glimpse-head-budgets"

type headBudgetsFile struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	HeadBudgets
}
