package datasets

import "math/rand/v2"

func init() {
	registerLong("values", "all values of a key that comes back with another value each time, in the order of the text; the question says how many",
		query{factLists, func(r *rand.Rand, f *longFacts) (question, answer []int32) {
			for _, i := range r.Perm(len(f.lists)) {
				if l := f.lists[i]; f.ask(l.key) {
					return []int32{tokAll, l.key, ordinal(len(l.values) - 1)}, l.values
				}
			}
			return nil, nil
		}})
}
