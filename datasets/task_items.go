package datasets

import "math/rand/v2"

func init() {
	register("items", "every numbered item with its value, in the order of the numbers and not of the text; the question says how many",
		query{factItems, func(_ *rand.Rand, f *Facts) (question, answer []int32) {
			if len(f.items) == 0 || !f.askOnce(tokMarks) {
				return nil, nil
			}
			for j, v := range f.items {
				answer = append(answer, ordinal(j), v)
			}
			return []int32{tokMarks, ordinal(len(f.items) - 1)}, answer
		}})
}
