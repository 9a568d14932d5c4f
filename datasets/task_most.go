package datasets

import "math/rand/v2"

func init() {
	register("most", "the most frequent colour of the context",
		query{factCounts, func(_ *rand.Rand, f *Facts) (question, answer []int32) {
			if len(f.counts) == 0 || !f.askOnce(tokMost) {
				return nil, nil
			}
			return []int32{tokMost}, []int32{f.counts[0].colour}
		}})
}
