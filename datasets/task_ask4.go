package datasets

import "math/rand/v2"

func init() {
	register(Task{
		Name:    "ask4",
		Doc:     "the values of four keys, in the order of the question",
		Default: true,
		ask:     func(r *rand.Rand, f *facts) (question, answer []int32) { return askKeys(r, f, 4) },
	})
}
