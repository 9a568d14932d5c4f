package eviction

import (
	"slices"

	"glimpse/model"
)

func init() {
	Policies.Add("exact-topk", Policy{
		Kind: "decode", Doc: "attends to the entries with the highest attention of every step: the oracle of sparse policies", Source: "RocketKV (Behnam et al. 2025, arXiv:2502.14051) §4.1, app. A.3",
		New: func(Settings, model.Adapter) (Method, error) { return exactTopK{}, nil },
	})
}

// exactTopK keeps everything and attends to the B entries with the highest
// attention probability, averaged over the group: by its logarithm, see [logMean]. Finding them counts as free, so
// that its traffic is the attention's alone; in truth it reads every key.
type exactTopK struct{ full }

func (exactTopK) StartSparse(s *Session) SparseState {
	if d := deviceOf(s.Cache); d != nil {
		return newDeviceSparse(d, s, nil, 0, 1, 0)
	}
	return &exactState{newSparseState(s, nil, 0, 1, 0)}
}

type exactState struct{ *sparseState }

func (st *exactState) Select(s *model.SparseStep) (int64, error) {
	heads := st.heads[s.Layer]
	choice, dense := make([][]int32, len(heads)), !st.pooled
	var scores [][]float32 // logarithms of probabilities, by query head
	for h, x := range heads {
		x.add(int32(s.Cache.Entries(s.Layer, h)-1), nil)
		from, _ := slices.BinarySearch(x.idx, int32(s.First[h]))
		if len(x.idx)-from <= st.budget {
			choice[h] = x.idx[from:]
			continue
		}
		dense = false
		if scores == nil {
			all := s.Scores()
			for g := range all.Dim0() {
				scores = append(scores, all.Float32s()[g*all.Width():][:all.Width()])
			}
		}
		group := len(scores) / len(heads)
		rows := make([][]float32, group)
		for g := range rows {
			for _, j := range x.idx[from:] {
				rows[g] = append(rows[g], scores[h*group+g][j])
			}
		}
		n := len(x.idx)
		choice[h] = x.top(logMean(make([]float32, n-from), rows), from, n, st.budget)
	}
	if !dense {
		s.Entries = choice
	}
	return 0, nil
}
