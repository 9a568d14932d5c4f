package datasets

import "math/rand/v2"

func init() {
	t := Task{
		Name:    "copy",
		Doc:     "the passage between its brackets, word for word",
		Default: true,
		ask: func(_ *rand.Rand, f *facts) (question, answer []int32) {
			return []int32{tokCopy}, f.passage
		},
	}
	register(t)
	registerQuestionFirst(t, true)
}
