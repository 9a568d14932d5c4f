package datasets

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// frame is the number of prompt tokens around the context and the question:
// <bos> <user> <context> before, </context> and the suffix after.
const frame = 8

// maxQuestion is the longest question of any task: <ask> and four keys.
const maxQuestion = 5

// unit is a token sequence that must not be torn apart. Units of one order above 0
// stand in the text as they come; all others stand anywhere.
type unit struct {
	ids   []int32
	order int
}

func (f *Facts) units() []unit {
	var units []unit
	add := func(order int, ids ...int32) { units = append(units, unit{ids, order}) }
	for _, p := range f.pairs {
		add(0, p.key, p.values[0], p.values[1])
	}
	for i, l := range f.lists {
		for _, v := range l.values {
			add(i+1, l.key, v)
		}
	}
	for _, chain := range f.chains {
		for i := range len(chain) - 1 {
			add(0, chain[i], tokLink, chain[i+1])
		}
	}
	if len(f.section) > 0 {
		add(0, slices.Concat([]int32{tokPassage}, f.section, []int32{tokPassageEnd})...)
	}
	for j, v := range f.items {
		add(0, ordinal(j), v)
	}
	for _, c := range f.counts {
		for range c.times {
			add(0, c.colour)
		}
	}
	for j, t := range f.topics {
		add(1, ordinal(j), t.phrase[0], t.phrase[1])
		for range t.mentions {
			add(0, t.phrase[:]...)
		}
	}
	return units
}

// Tokens is the room that the facts take in a context.
func (f *Facts) Tokens() int {
	n := 0
	for _, u := range f.units() {
		n += len(u.ids)
	}
	return n
}

// LayOut returns a context of the given number of tokens: the facts in random order
// at uniformly random places among uniformly random fillers.
func (f *Facts) LayOut(r *rand.Rand, tokens int) ([]int32, error) {
	units := f.units()
	shuffled := slices.Clone(units)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	// The places that units of one order drew are filled in that order.
	next := map[int]int{}
	ordered := make([][]int32, len(shuffled))
	for i, u := range shuffled {
		ordered[i] = u.ids
		if u.order == 0 {
			continue
		}
		j := next[u.order]
		for units[j].order != u.order {
			j++
		}
		next[u.order] = j + 1
		ordered[i] = units[j].ids
	}
	return spread(r, ordered, tokens)
}

// spread returns so many tokens: the units in their order, each whole, at uniformly random
// places among uniformly random fillers.
func spread(r *rand.Rand, units [][]int32, tokens int) ([]int32, error) {
	free := tokens
	for _, u := range units {
		free -= len(u)
	}
	if free < 0 {
		return nil, fmt.Errorf("lay out a context: got %d tokens, want at least %d for its facts", tokens, tokens-free)
	}
	// Unit i stands after cuts[i] fillers.
	cuts := make([]int, len(units))
	for i := range cuts {
		cuts[i] = r.IntN(free + 1)
	}
	slices.Sort(cuts)
	out := make([]int32, 0, tokens)
	fill := func(n int) {
		for range n {
			out = append(out, fillersBegin+r.Int32N(fillersEnd-fillersBegin))
		}
	}
	filled := 0
	for i, u := range units {
		fill(cuts[i] - filled)
		filled = cuts[i]
		out = append(out, u...)
	}
	fill(free - filled)
	return out, nil
}
