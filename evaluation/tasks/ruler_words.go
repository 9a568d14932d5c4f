package tasks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// The texts are those of RULER, scripts/data/synthetic/constants.py.
const (
	cweTemplate = "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that appear most often.\n%s\nQuestion: What are the 10 most common words in the above list?"
	cweBegin    = " Answer: The top 10 words that appear most often in the list are:"
	fweTemplate = "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared coded words. %s\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently appeared words in the above coded text?"
	fweBegin    = " Answer: According to the coded text above, the three most frequently appeared words are:"
)

// shuffled puts words in a random order that more words of the same list hardly change:
// each has a place of its own, which its number decides.
type shuffled struct {
	seed  uint64
	items []placed
}

type placed struct {
	place uint64
	word  string
}

func (s *shuffled) add(word string, number int) {
	// One step of SplitMix64 (Steele, Lea, Flood 2014).
	z := s.seed + uint64(number+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	s.items = append(s.items, placed{z ^ z>>31, word})
}

func (s *shuffled) words() []string {
	slices.SortFunc(s.items, func(a, b placed) int {
		if a.place < b.place {
			return -1
		}
		return 1
	})
	out := make([]string, len(s.items))
	for i, item := range s.items {
		out[i] = item.word
	}
	return out
}

// cweRULER asks for the ten most common words of a list. Its units are words that are less
// common, its fillers others, drawn one by one.
type cweRULER struct {
	seed                        uint64
	common, others              []string
	commonRepeats, otherRepeats int
	example                     string
}

const cweCommon = 10

// makeCWE follows RULER: common words 30 times and others 3 times, after an example of 40
// words with 10 and 3; for lengths below 4096 tokens 6 times and once, after 20 with 3 and 1.
func makeCWE(_ *ruler, rng *rand.Rand, length, _ int) (rulerDraft, error) {
	d := &cweRULER{seed: rng.Uint64(), commonRepeats: 30, otherRepeats: 3}
	examples, exampleCommon, exampleOther := 40, 10, 3
	if length < 4096 {
		d.commonRepeats, d.otherRepeats = 6, 1
		examples, exampleCommon, exampleOther = 20, 3, 1
	}
	// Every word takes three tokens or more with its number.
	pool := wordList(rng, cweCommon+examples+length/3)
	d.common, d.others = pool[:cweCommon], pool[cweCommon+examples:]
	shown := pool[cweCommon : cweCommon+examples]
	list := shuffled{seed: rng.Uint64()}
	for i, word := range shown {
		repeats := exampleOther
		if i < cweCommon {
			repeats = exampleCommon
		}
		for k := range repeats {
			list.add(word, i*exampleCommon+k)
		}
	}
	d.example = fmt.Sprintf(cweTemplate, numbered(list.words())) + cweBegin + " " + numbered(shown[:cweCommon])
	return d, nil
}

// numbered is a list in one line.
func numbered(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d. %s", i+1, w)
	}
	return b.String()
}

func (d *cweRULER) answers() []string { return d.common }

// variants are last words of other lengths in tokens.
func (d *cweRULER) variants() int { return 100 }

// last is a word of one to four parts.
func (d *cweRULER) last(variant int) string {
	rng := rand.New(rand.NewPCG(d.seed, uint64(variant)))
	word := nouns[rng.IntN(len(nouns))]
	for range variant % 4 {
		word = adjectives[rng.IntN(len(adjectives))] + "-" + word
	}
	return word
}

func (d *cweRULER) text(units, fillers, variant int) (user, begin string, err error) {
	if units > len(d.others) {
		return "", "", errNoMore
	}
	list := shuffled{seed: d.seed}
	for i, word := range d.common {
		for k := range d.commonRepeats {
			list.add(word, i*d.commonRepeats+k)
		}
	}
	first := cweCommon * d.commonRepeats
	for i, word := range d.others[:units] {
		for k := range d.otherRepeats {
			list.add(word, first+i*d.otherRepeats+k)
		}
	}
	rng := rand.New(rand.NewPCG(d.seed, 0))
	for i := range fillers {
		word := randomPair(rng)
		if i == fillers-1 && variant > 0 {
			word = d.last(variant)
		}
		list.add(word, math.MaxInt32+i)
	}
	return d.example + "\n" + fmt.Sprintf(cweTemplate, numbered(list.words())), cweBegin, nil
}

// fweRULER asks for the three most frequent of coded words, whose frequencies fall as the
// square of their rank; the first rank is noise. Its units are words, its fillers noise.
type fweRULER struct {
	seed  uint64
	vocab []string
}

const (
	fweAlpha = 2.0
	fweZeta  = math.Pi * math.Pi / 6 // of fweAlpha
	fweNoise = "..."
)

func makeFWE(_ *ruler, rng *rand.Rand, length, _ int) (rulerDraft, error) {
	d := &fweRULER{vocab: []string{fweNoise}}
	seen := make(map[string]bool)
	for len(d.vocab) < max(length/50, 8) {
		word := make([]byte, 6)
		for i := range word {
			word[i] = 'a' + byte(rng.IntN(26))
		}
		if !seen[string(word)] {
			seen[string(word)] = true
			d.vocab = append(d.vocab, string(word))
		}
	}
	d.seed = rng.Uint64()
	return d, nil
}

func (d *fweRULER) answers() []string { return d.vocab[1:4] }

// variants are lengths of the last noise.
func (d *fweRULER) variants() int { return 5 }

func (d *fweRULER) text(units, fillers, variant int) (user, begin string, err error) {
	list := shuffled{seed: d.seed}
	for rank, word := range d.vocab {
		n := int(float64(units) * math.Pow(float64(rank+1), -fweAlpha) / fweZeta)
		for k := range n {
			list.add(word, rank<<32|k)
		}
	}
	for k := range fillers {
		dots := fweNoise
		if k == fillers-1 && variant > 0 {
			dots = strings.Repeat(".", variant)
		}
		list.add(dots, len(d.vocab)<<32|k)
	}
	return fmt.Sprintf(fweTemplate, strings.Join(list.words(), " ")), fweBegin, nil
}
