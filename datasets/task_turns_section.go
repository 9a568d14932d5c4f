package datasets

func init() {
	register("turns_section", "two turns: the keys of a chain, then the section between its brackets", hopsQuery, sectionQuery)
}
