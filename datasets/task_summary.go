package datasets

import "math/rand/v2"

// A summary asks for nothing but a number that only the question could tell: what belongs in it
// is known by its kind while the context is read, and the text comes back to it. So a
// policy that never sees a question can keep it.
func init() {
	register("summary", "the topics of the text, each with its number and its two words, out of all the places that speak of them; the question says how many",
		query{factTopics, func(_ *rand.Rand, f *Facts) (question, answer []int32) {
			if len(f.topics) == 0 || !f.askOnce(tokSummary) {
				return nil, nil
			}
			for j, t := range f.topics {
				answer = append(answer, ordinal(j), t.phrase[0], t.phrase[1])
			}
			return []int32{tokSummary, ordinal(len(f.topics) - 1)}, answer
		}})
}
