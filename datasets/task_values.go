package datasets

import "math/rand/v2"

func init() {
	registerLong("values", "all values of a key that comes back with another value each time, in the order of the text",
		query{factLists, func(r *rand.Rand, f *longFacts) (question, answer []int32) {
			for _, i := range r.Perm(len(f.lists)) {
				if l := f.lists[i]; f.ask(l.key) {
					return []int32{tokAll, l.key}, l.values
				}
			}
			return nil, nil
		}})
}
