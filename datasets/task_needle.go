package datasets

func init() {
	registerLong("needle", "the two values of the only key in a context of fillers", query{factNeedle, askPairs(1)})
}
