package tasks

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// The texts are RULER's, scripts/data/synthetic/constants.py.
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

func (s *shuffled) addWord(word string, number int) {
	// One step of SplitMix64 (Steele, Lea, Flood 2014).
	z := s.seed + uint64(number+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	s.items = append(s.items, placed{z ^ z>>31, word})
}

func (s *shuffled) words() []string {
	slices.SortFunc(s.items, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	out := make([]string, len(s.items))
	for i, item := range s.items {
		out[i] = item.word
	}
	return out
}

const cweCommon = 10

// makeCWE asks for the ten most common words of a list. Its units are words that are less
// common, its fillers others, drawn one by one. As in RULER common words are there 30 times and others 3 times,
// after an example of 40 words with 10 and 3; for lengths below 4096 tokens 6 times and once, after 20 with 3 and 1.
func makeCWE(_ *ruler, rng *rand.Rand, length, _ int) (draft, error) {
	seed, commonRepeats, otherRepeats := rng.Uint64(), 30, 3
	examples, exampleCommon, exampleOther := 40, 10, 3
	if length < 4096 {
		commonRepeats, otherRepeats = 6, 1
		examples, exampleCommon, exampleOther = 20, 3, 1
	}
	// Every word takes three tokens or more with its number.
	pool := wordList(rng, cweCommon+examples+length/3)
	common, shown, others := pool[:cweCommon], pool[cweCommon:cweCommon+examples], pool[cweCommon+examples:]
	list := shuffled{seed: rng.Uint64()}
	for i, word := range shown {
		repeats := exampleOther
		if i < cweCommon {
			repeats = exampleCommon
		}
		for k := range repeats {
			list.addWord(word, i*exampleCommon+k)
		}
	}
	example := fmt.Sprintf(cweTemplate, numbered(list.words())) + cweBegin + " " + numbered(shown[:cweCommon])
	// Variants are last words of other lengths in tokens.
	return draft{variants: 100, answers: common, text: func(units, fillers, variant int) (user, begin string, err error) {
		if units > len(others) {
			return "", "", errNoMore
		}
		list := shuffled{seed: seed}
		for i, word := range common {
			for k := range commonRepeats {
				list.addWord(word, i*commonRepeats+k)
			}
		}
		first := cweCommon * commonRepeats
		for i, word := range others[:units] {
			for k := range otherRepeats {
				list.addWord(word, first+i*otherRepeats+k)
			}
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range fillers {
			word := randomPair(rng)
			if i == fillers-1 && variant > 0 {
				word = cweLast(seed, variant)
			}
			list.addWord(word, math.MaxInt32+i)
		}
		return example + "\n" + fmt.Sprintf(cweTemplate, numbered(list.words())), cweBegin, nil
	}}, nil
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

// cweLast is a word of one to four parts.
func cweLast(seed uint64, variant int) string {
	rng := rand.New(rand.NewPCG(seed, uint64(variant)))
	word := nouns[rng.IntN(len(nouns))]
	for range variant % 4 {
		word = adjectives[rng.IntN(len(adjectives))] + "-" + word
	}
	return word
}

const (
	fweAlpha = 2.0
	fweZeta  = math.Pi * math.Pi / 6 // of fweAlpha
	fweNoise = "..."
)

// makeFWE asks for the three most frequent of coded words, whose frequencies fall as the
// square of their rank; the first rank is noise. Its units are words, its fillers noise.
func makeFWE(_ *ruler, rng *rand.Rand, length, _ int) (draft, error) {
	vocab := []string{fweNoise}
	seen := make(map[string]bool)
	for len(vocab) < max(length/50, 8) {
		if word := randomLetters(rng, 'a', 6); !seen[word] {
			seen[word] = true
			vocab = append(vocab, word)
		}
	}
	seed := rng.Uint64()
	// Variants are lengths of the last noise.
	return draft{variants: 5, answers: vocab[1:4], text: func(units, fillers, variant int) (user, begin string, err error) {
		list := shuffled{seed: seed}
		for rank, word := range vocab {
			n := int(float64(units) * math.Pow(float64(rank+1), -fweAlpha) / fweZeta)
			for k := range n {
				list.addWord(word, rank<<32|k)
			}
		}
		for k := range fillers {
			dots := fweNoise
			if k == fillers-1 && variant > 0 {
				dots = strings.Repeat(".", variant)
			}
			list.addWord(dots, len(vocab)<<32|k)
		}
		return fmt.Sprintf(fweTemplate, strings.Join(list.words(), " ")), fweBegin, nil
	}}, nil
}
