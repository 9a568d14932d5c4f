package datasets

import "math/rand/v2"

func init() {
	doc := "the two to four keys reached from the first key of a chain, link by link"
	register("hops", doc, hopsQuery)
	registerQuestionFirst("hops", doc, hopsQuery)
}

var hopsQuery = query{factChains, func(r *rand.Rand, f *Facts) (question, answer []int32) {
	for _, i := range r.Perm(len(f.chains)) {
		if chain := f.chains[i]; f.askOnce(chain[0]) {
			return []int32{tokChain, chain[0]}, chain[1:]
		}
	}
	return nil, nil
}}
