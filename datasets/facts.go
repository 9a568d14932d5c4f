package datasets

import (
	"math/rand/v2"
	"slices"
)

// factKind is a kind of fact that contexts hold. A context with a needle or
// with topics holds nothing else; all others hold every kind in between, so that
// only the question says which counts.
type factKind int

const (
	factNeedle  factKind = iota // one pair
	factPairs                   // keys with two values each
	factLists                   // keys that come back, each time with another value
	factChains                  // links from key to key
	factSection                 // values between two brackets
	factItems                   // ordinals with a value each, in any order
	factCounts                  // colours, one of them most often
	factTopics                  // ordinals with two values each, in order, that the text returns to
)

// mixedFacts are what a context without a needle and without topics holds.
var mixedFacts = []factKind{factPairs, factLists, factChains, factSection, factItems, factCounts}

// Facts is what one context says. No key and no value occurs in two
// facts, so every question has one answer.
type Facts struct {
	pairs   []keyValues
	lists   []keyList
	chains  [][]int32 // keys in link order
	section []int32
	items   []int32 // the value at ordinal j
	counts  []count // the most frequent first
	topics  []topic

	keys, values []int32        // shuffled; those in no fact yet
	asked        map[int32]bool // keys and question words that a question had
}

type keyValues struct {
	key    int32
	values [2]int32
}

type keyList struct {
	key    int32
	values []int32 // in the order of the text
}

type count struct {
	colour int32
	times  int
}

type topic struct {
	phrase   [2]int32
	mentions int // after its number, at least one
}

// drawFacts draws facts for a context of the given number of tokens: first of
// the kinds needed, then others as far as there is room.
func drawFacts(r *rand.Rand, tokens int, needs ...factKind) *Facts {
	keys := append(shuffledRange(r, keysBegin, valuesBegin), shuffledRange(r, moreKeysBegin, coloursBegin)...)
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	f := &Facts{keys: keys, values: shuffledRange(r, valuesBegin, fillersBegin), asked: map[int32]bool{}}
	kinds := needs
	if !slices.Contains(needs, factNeedle) && !slices.Contains(needs, factTopics) {
		others := slices.Clone(mixedFacts)
		r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		kinds = slices.Concat(needs, others)
	}
	room := tokens
	for i, kind := range kinds {
		if slices.Contains(kinds[:i], kind) {
			continue
		}
		// What is needed is drawn to fit; the rest is left out where it does not.
		before := *f
		if n := f.drawKind(r, kind, tokens, room); n <= room {
			room -= n
		} else { // its words stay drawn
			before.keys, before.values = f.keys, f.values
			*f = before
		}
	}
	return f
}

// drawKind adds the facts of one kind for a context of the given number of tokens, and
// returns the room they take. Numbers of facts grow with the length and end where
// the words do: at 512 tokens 18 to 35 pairs, at 1,024 and more 36 to 72.
func (f *Facts) drawKind(r *rand.Rand, kind factKind, tokens, room int) int {
	switch kind {
	case factNeedle:
		f.pairs = f.drawPairs(1)
		return 3
	case factPairs:
		most := clamp(min(tokens/14, room/3), 2, 72)
		f.pairs = f.drawPairs(between(r, max(2, (most+1)/2), most))
		return 3 * len(f.pairs)
	case factLists:
		n := 0
		for range 1 + thresholdStep(tokens, 150) + thresholdStep(tokens, 1000) {
			l := keyList{f.takeWords(&f.keys, 1)[0], f.takeWords(&f.values, between(r, 2, 3+thresholdStep(tokens, 100)))}
			f.lists = append(f.lists, l)
			n += 2 * len(l.values)
		}
		return n
	case factChains:
		n := 0
		for range 1 + thresholdStep(tokens, 100) + thresholdStep(tokens, 1000) {
			links := between(r, 2, 2+thresholdStep(tokens, 60)+thresholdStep(tokens, 120))
			f.chains = append(f.chains, f.takeWords(&f.keys, links+1))
			n += 3 * links
		}
		return n
	case factSection:
		f.section = f.takeWords(&f.values, between(r, 3, clamp(tokens/20, 4, 16)))
		return len(f.section) + 2
	case factItems:
		f.items = f.takeWords(&f.values, between(r, 2, clamp(tokens/30, 2, 6)))
		return 2 * len(f.items)
	case factCounts:
		return f.drawCounts(r, tokens)
	case factTopics:
		n := 0
		for range between(r, 2, clamp(tokens/40, 2, 6)) {
			t := topic{[2]int32(f.takeWords(&f.values, 2)), between(r, 1, 2+thresholdStep(tokens, 100)+thresholdStep(tokens, 1000))}
			f.topics = append(f.topics, t)
			n += 3 + 2*t.mentions
		}
		return n
	}
	panic("datasets: unknown kind of fact")
}

func (f *Facts) drawPairs(n int) []keyValues {
	pairs := make([]keyValues, n)
	for i := range pairs {
		pairs[i] = keyValues{f.takeWords(&f.keys, 1)[0], [2]int32(f.takeWords(&f.values, 2))}
	}
	return pairs
}

// drawCounts has one colour come twice as often as any other, at least. With a lead of three
// tenths the reference model answered 85%.
func (f *Facts) drawCounts(r *rand.Rand, tokens int) int {
	colours := shuffledRange(r, coloursBegin, vocabularySize)[:between(r, 2, clamp(tokens/60, 2, 6))]
	lead := between(r, 3, clamp(tokens/40, 4, 12))
	n := 0
	for i, c := range colours {
		times := lead
		if i > 0 {
			times = between(r, 1, lead/2)
		}
		f.counts = append(f.counts, count{c, times})
		n += times
	}
	return n
}

// takeWords moves n words out of those that no fact has.
func (f *Facts) takeWords(from *[]int32, n int) []int32 {
	taken := (*from)[:n:n]
	*from = (*from)[n:]
	return taken
}

// between is uniform between least and most, both included.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }

func clamp(n, least, most int) int { return max(least, min(n, most)) }

// thresholdStep is 1 from the threshold on and 0 before it.
func thresholdStep(n, threshold int) int {
	if n >= threshold {
		return 1
	}
	return 0
}

// ordinal is the word for place j, from 0.
func ordinal(j int) int32 {
	if j < 4 {
		return tokFirst + int32(j)
	}
	return tokFifth + int32(j-4)
}

func shuffledRange(r *rand.Rand, begin, end int32) []int32 {
	ids := make([]int32, end-begin)
	for i, p := range r.Perm(len(ids)) {
		ids[i] = begin + int32(p)
	}
	return ids
}
