package datasets

import "math/rand/v2"

func init() {
	t := Task{
		Name:    "chain",
		Doc:     "all keys reached from the first key of a chain, link by link",
		Default: true,
		ask: func(r *rand.Rand, f *facts) (question, answer []int32) {
			chain := f.chains[r.IntN(len(f.chains))]
			return []int32{tokChain, chain[0]}, chain[1:]
		},
	}
	register(t)
	// The reference model answers one in five even with the full cache, so it says
	// little about eviction.
	registerQuestionFirst(t, false)
}
