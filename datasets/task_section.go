package datasets

import "math/rand/v2"

func init() {
	doc := "the section between its brackets, word for word"
	register("section", doc, sectionQuery)
	registerQuestionFirst("section", doc, sectionQuery)
}

var sectionQuery = query{factSection, func(_ *rand.Rand, f *Facts) (question, answer []int32) {
	if len(f.section) == 0 || !f.askOnce(tokCopy) {
		return nil, nil
	}
	return []int32{tokCopy}, f.section
}}
