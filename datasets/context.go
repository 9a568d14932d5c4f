package datasets

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// difficulty says how many facts a context holds.
type difficulty struct {
	pairs   int // keys with two values each
	chains  int // chains of links
	links   int // links per chain
	passage int // values between the passage brackets; 0 for no passage
	marks   int // numbered marks with one value each
}

// tokens is the room that the facts take in the context.
func (d difficulty) tokens() int {
	n := 3*d.pairs + 3*d.chains*d.links + 2*d.marks
	if d.passage > 0 {
		n += d.passage + 2
	}
	return n
}

// frame is the number of prompt tokens around the context and the question:
// <bos> <user> <context> before, </context> and the suffix after.
const frame = 8

// maxQuestion is the longest question of any task: <ask> and four keys.
const maxQuestion = 5

// fullDifficulty is the most that a prompt of this many tokens asks of the
// model: the upper ends of the ranges that it was trained on, which grow with
// the length in three steps. At 512 tokens the facts fill 28% of the context.
func fullDifficulty(tokens int) difficulty {
	d := difficulty{pairs: 32, chains: 2, links: 4, passage: 12, marks: 4}
	switch {
	case tokens < 96:
		d = difficulty{pairs: 5, chains: 1, links: 2, passage: 4, marks: 2}
	case tokens < 160:
		d = difficulty{pairs: 11, chains: 2, links: 3, passage: 8, marks: 4}
	}
	for d.pairs > 1 && d.tokens() > tokens-frame-maxQuestion {
		d.pairs--
	}
	return d
}

// facts is what one context says. No key and no value occurs in two facts, so
// every question has one answer.
type facts struct {
	pairs   []keyValues
	chains  [][]int32 // keys in link order, links+1 each
	passage []int32
	marks   []int32 // the value at mark j
}

type keyValues struct {
	key    int32
	values [2]int32
}

func drawFacts(r *rand.Rand, d difficulty) *facts {
	keys := shuffledRange(r, keysBegin, valuesBegin)
	values := shuffledRange(r, valuesBegin, fillersBegin)
	take := func(from *[]int32, n int) []int32 {
		taken := (*from)[:n:n]
		*from = (*from)[n:]
		return taken
	}
	f := &facts{}
	for range d.pairs {
		f.pairs = append(f.pairs, keyValues{take(&keys, 1)[0], [2]int32(take(&values, 2))})
	}
	for range d.chains {
		f.chains = append(f.chains, take(&keys, d.links+1))
	}
	f.passage = take(&values, d.passage)
	f.marks = take(&values, d.marks)
	return f
}

func shuffledRange(r *rand.Rand, begin, end int32) []int32 {
	ids := make([]int32, end-begin)
	for i, p := range r.Perm(len(ids)) {
		ids[i] = begin + int32(p)
	}
	return ids
}

// layOut returns a context of the given number of tokens: the facts in random
// order, links of a chain apart from each other, at uniformly random places
// among uniformly random fillers.
func (f *facts) layOut(r *rand.Rand, tokens int) ([]int32, error) {
	units := f.units()
	r.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
	return spread(r, units, tokens)
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
			out = append(out, fillersBegin+r.Int32N(vocabularySize-fillersBegin))
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

// units returns the token sequences that must not be torn apart.
func (f *facts) units() [][]int32 {
	var units [][]int32
	for _, p := range f.pairs {
		units = append(units, []int32{p.key, p.values[0], p.values[1]})
	}
	for _, chain := range f.chains {
		for i := range len(chain) - 1 {
			units = append(units, []int32{chain[i], tokLink, chain[i+1]})
		}
	}
	if len(f.passage) > 0 {
		units = append(units, slices.Concat([]int32{tokPassage}, f.passage, []int32{tokPassageEnd}))
	}
	for j, v := range f.marks {
		units = append(units, []int32{tokFirstMark + int32(j), v})
	}
	return units
}
