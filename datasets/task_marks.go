package datasets

import "math/rand/v2"

func init() {
	t := Task{
		Name:       "marks",
		Doc:        "every mark with its value, in the order of the marks and not of the text",
		Default:    true,
		difficulty: marksDifficulty,
		ask: func(_ *rand.Rand, f *facts) (question, answer []int32) {
			for j, v := range f.marks {
				answer = append(answer, tokFirstMark+int32(j), v)
			}
			return []int32{tokMarks}, answer
		},
	}
	register(t)
	registerQuestionFirst(t, true)
}

// marksDifficulty leaves the fourth mark to other tasks, as a distractor. The
// reference model lists the first three of four without a mistake and then stops
// three times out of four: with four marks a wrong answer would say little about
// eviction. scripts/check_reference_model.py measures what it gets right.
func marksDifficulty(tokens int) difficulty {
	d := fullDifficulty(tokens)
	d.marks = min(d.marks, 3)
	return d
}
