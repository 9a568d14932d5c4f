package datasets

func init() {
	register("turns_key", "two turns: the values of one key, then those of another", keyQuery, keyQuery)
}
