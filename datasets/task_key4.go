package datasets

func init() {
	register("key4", "the values of four keys, in the order of the question", query{factPairs, askPairs(4)})
}
