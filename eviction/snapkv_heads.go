package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
)

// perQueryHead is the choice of perOption that is not the default.
const perQueryHead = "query-head"

// perOption chooses whose entries are selected.
var perOption = Option{Name: "per", Choices: choices("kv-head", perQueryHead), Doc: "who selects: a KV head for its group; or every query head for itself, budget ÷ group entries that no other head reads (RocketKV, arXiv:2502.14051, app. A.3)"}

// snapPerHead is SnapKV as RocketKV compares with it (arXiv:2502.14051, app. A.3): under
// grouped-query attention "the token budget is divided by the number of heads per attention
// group", and what one head keeps "is not shared within the attention group". The cache of a
// KV head holds the union of its query heads' entries, which is at most the budget; every
// query head attends to its own part of it and to later entries.
type snapPerHead struct{ snapDense }

// headPrompt is the prompt as one query head sees it.
func (snapPerHead) headPrompt(p Prompt) Prompt {
	p.Budget = max(1, p.Budget/p.Config.Group())
	return p
}

// Plan scores by the query heads [heads, width] as the spread; the values, their
// means over groups, choose nothing.
func (m snapPerHead) Plan(p Prompt) Plan {
	plan := m.snapkv.Plan(m.headPrompt(p))
	plan.Layers = denseBudgets(p, p.Budget, m.dense)
	plan.Score = func(s *Scores, o *runner.Observation) {
		term := m.term(m.headPrompt(p), o)
		s.Observe(term)
		s.Spread = s.Ops.Alloc(kernels.F32, p.Config.Heads, s.Most())
		s.Ops.Scores(s.Spread, perHead(s.Entries, p.Config.Heads), []kernels.ScoreTerm{term}, false)
	}
	plan.Select = m.union
	plan.Sparse = func(s *Session) SparseState { return m.choices(s, plan.Layers) }
	return plan
}

// perHead repeats the numbers of KV heads for their query heads.
func perHead(x []int, heads int) (out []int) {
	for _, v := range x {
		out = append(out, slices.Repeat([]int{v}, heads/len(x))...)
	}
	return out
}

// selectPerHead is what every query head keeps, with what stays; of a layer that is left whole, everything.
func (m snapPerHead) selectPerHead(s *Scores, budget int) [][]int32 {
	heads := s.Spread.Dim0()
	entries := perHead(s.Entries, heads)
	if budget >= s.Most() {
		return everything(entries).Indices()
	}
	own := max(1, budget*len(s.Entries)/heads)
	rest := s.hidden()
	chosen := rest.Ops.Select(rest.Spread, entries, slices.Repeat([]int{own}, heads), 0, windowOf(m.window, own)).Indices()
	if s.stay != nil {
		for q := range chosen {
			chosen[q] = union(chosen[q], s.stay.indices[q*len(s.Entries)/heads])
		}
	}
	return chosen
}

// union is a Plan's Select.
func (m snapPerHead) union(s *Scores, budget int) *kernels.Selection {
	chosen := m.selectPerHead(s, budget)
	group, kept := len(chosen)/len(s.Entries), make([][]int32, len(s.Entries))
	for h := range kept {
		kept[h] = slices.Concat(chosen[h*group : (h+1)*group]...)
		slices.Sort(kept[h])
		kept[h] = slices.Compact(kept[h])
	}
	return kernels.Chosen(kept, s.Entries)
}

// choices are what the query heads read of a session under the layers' budgets. A prompt within
// the budget has no scores, and everything is read.
func (m snapPerHead) choices(s *Session, budgets []int) SparseState {
	st := &headChoice{}
	for l, scores := range s.scores {
		if scores == nil { // a layer that is left alone
			st.chosen, st.base = append(st.chosen, nil), append(st.base, nil)
			continue
		}
		chosen := m.selectPerHead(scores, scores.restBudget(budgets[l]))
		kept := s.kept[l].Indices()
		for q, idx := range chosen {
			of := kept[q*len(kept)/len(chosen)]
			for i, j := range idx { // from entries of the prompt to entries of the cache
				at, _ := slices.BinarySearch(of, j)
				idx[i] = int32(at)
			}
		}
		st.chosen, st.base = append(st.chosen, chosen), append(st.base, perHead(entriesOf(s.Cache, l), len(chosen)))
	}
	return st
}

// headChoice is what every query head attends to of the cache: its choice of the first base
// entries, and all that came after them.
type headChoice struct {
	chosen [][][]int32 // [layer][query head]
	base   [][]int     // likewise
}

func (st *headChoice) Select(s *runner.SparseStep) (estimation int64, err error) {
	if st.chosen == nil {
		return 0, nil
	}
	chosen := st.chosen[s.Layer]
	if chosen == nil {
		return 0, nil
	}
	s.Entries = make([][]int32, len(chosen))
	for q, idx := range chosen {
		n := s.Cache.Entries(s.Layer, q*s.Cache.KVHeads()/len(chosen))
		s.Entries[q] = slices.Concat(idx, upTo(st.base[s.Layer][q], n))
	}
	return 0, nil
}

// Recordable implements SparseState: the host says what is read.
func (*headChoice) Recordable() bool { return false }

func (*headChoice) Estimated() []int64 { return nil }

func (st *headChoice) Bytes() (n int64) {
	for _, layer := range st.chosen {
		for _, idx := range layer {
			n += 4 * int64(len(idx))
		}
	}
	return n
}
