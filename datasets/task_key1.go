package datasets

import "math/rand/v2"

func init() {
	doc := "the two values of one key out of all pairs of the context"
	register("key1", doc, keyQuery)
	registerQuestionFirst("key1", doc, keyQuery)
}

var keyQuery = query{factPairs, askPairs(1)}

// askPairs asks for the values of n different keys, or of all keys that are left if
// there are fewer.
func askPairs(n int) func(r *rand.Rand, f *Facts) (question, answer []int32) {
	return func(r *rand.Rand, f *Facts) (question, answer []int32) {
		question = []int32{tokAsk}
		for _, i := range r.Perm(len(f.pairs)) {
			if p := f.pairs[i]; len(question) <= n && f.askOnce(p.key) {
				question = append(question, p.key)
				answer = append(answer, p.values[:]...)
			}
		}
		if len(answer) == 0 {
			return nil, nil
		}
		return question, answer
	}
}

// askOnce says whether a key or a question word was not asked yet, and takes it as asked.
func (f *Facts) askOnce(id int32) bool {
	if f.asked[id] {
		return false
	}
	f.asked[id] = true
	return true
}
