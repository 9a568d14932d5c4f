package datasets

import "math/rand/v2"

// Asked before the context, key lookup is not registered, and neither is ask4:
// the reference model never learned it.
func init() {
	register(Task{
		Name:    "ask1",
		Doc:     "the two values of one key out of all pairs of the context",
		Default: true,
		ask:     func(r *rand.Rand, f *facts) (question, answer []int32) { return askKeys(r, f, 1) },
	})
}

// askKeys asks for the values of n different keys, or of all keys if there are
// fewer.
func askKeys(r *rand.Rand, f *facts, n int) (question, answer []int32) {
	question = []int32{tokAsk}
	for _, i := range r.Perm(len(f.pairs))[:min(n, len(f.pairs))] {
		question = append(question, f.pairs[i].key)
		answer = append(answer, f.pairs[i].values[:]...)
	}
	return question, answer
}
