package datasets

func init() {
	doc := "the values of four keys, in the order of the question"
	registerLong("key4", doc, query{factPairs, askPairs(4)})
	registerLongQuestionFirst("key4", doc, query{factPairs, askPairs(4)})
}
