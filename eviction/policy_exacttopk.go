package eviction

import (
	"slices"

	"glimpse/internal/simd"
	"glimpse/model"
)

func init() {
	Policies.Add("exact-topk", Policy{
		Kind: "decode", Doc: "attends to the entries with the highest attention of every step: the oracle of sparse policies", Source: "rocketkv.txt §4.1, app. A.3",
		New: func(Settings, model.Adapter) (Method, error) { return exactTopK{}, nil },
	})
}

// exactTopK keeps everything and attends to the B entries with the highest
// attention probability, averaged over the group. Finding them counts as free, so
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
	var probabilities []float32
	width, group := 0, 0
	for h, x := range heads {
		x.add(int32(s.Cache.Entries(s.Layer, h)-1), nil)
		from, _ := slices.BinarySearch(x.idx, int32(s.First[h]))
		if len(x.idx)-from <= st.budget {
			choice[h] = x.idx[from:]
			continue
		}
		dense = false
		if probabilities == nil {
			scores := s.Scores()
			probabilities, width, group = scores.Float32s(), scores.Width(), scores.Dim0()/len(heads)
			simd.ExpSum(probabilities, probabilities, 0)
		}
		p := make([]float32, len(x.idx)-from)
		for i, j := range x.idx[from:] {
			for g := h * group; g < (h+1)*group; g++ {
				p[i] += probabilities[g*width+int(j)]
			}
		}
		choice[h] = x.top(p, from, st.budget)
	}
	if !dense {
		s.Entries = choice
	}
	return 0, nil
}
