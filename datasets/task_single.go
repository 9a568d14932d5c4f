package datasets

import "math/rand/v2"

func init() {
	t := Task{
		Name:       "single",
		Doc:        "the two values of the only key in a context of fillers",
		Default:    true,
		difficulty: func(int) difficulty { return difficulty{pairs: 1} },
		ask:        func(r *rand.Rand, f *facts) (question, answer []int32) { return askKeys(r, f, 1) },
	}
	register(t)
	registerQuestionFirst(t, true)
}
