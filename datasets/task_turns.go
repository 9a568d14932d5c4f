package datasets

import "math/rand/v2"

// What a first question needs says nothing about the second: an eviction that is
// for good loses it. The reference model has not learned conversations, but
// answers these.
func init() {
	register(Task{
		Name:     "turns",
		Doc:      "two turns: the values of one key, then the passage between its brackets",
		ask:      func(r *rand.Rand, f *facts) (question, answer []int32) { return askKeys(r, f, 1) },
		askAgain: func(_ *rand.Rand, f *facts) (question, answer []int32) { return []int32{tokCopy}, f.passage },
	})
}
