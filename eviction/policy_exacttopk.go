package eviction

func init() {
	Policies.Add("exact-topk", Policy{
		Kind: "decode", Doc: "attends to the entries with the highest attention of every step: the oracle of sparse policies", Source: "RocketKV (Behnam et al. 2025, arXiv:2502.14051) §4.1, app. A.3",
		Options: []Option{denseOption},
		New:     func(s Settings) (Method, error) { return exactTopK{dense: s.Int("dense")}, nil },
	})
}

// exactTopK keeps everything and attends to the B entries with the highest
// attention probability, averaged over the group: by its logarithm, see [kernels.GroupLogMean]. Finding them counts as free, so
// that its traffic is the attention's alone; in truth it reads every key.
type exactTopK struct{ dense int }

func (m exactTopK) Plan(p Prompt) Plan {
	return sparse(p, func(s *Session) SparseState { return NewSparsePages(s, nil, min(m.dense, s.Cache.Layers()), 1, 0) })
}
