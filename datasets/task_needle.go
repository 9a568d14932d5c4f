package datasets

func init() {
	register("needle", "the two values of the only key in a context of fillers", query{factNeedle, askPairs(1)})
}
