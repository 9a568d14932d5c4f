package tasks

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// wordLists are the words that tasks are made of: adjectives, nouns and verbs, an empty line between. RULER takes
// the words of the Python package wonderwords; these are of the same kinds.
//
//go:embed words.txt
var wordLists string

var adjectives, nouns, verbs = wordKinds()

func wordKinds() (adjectives, nouns, verbs []string) {
	kinds := strings.Split(wordLists, "\n\n")
	return strings.Fields(kinds[0]), strings.Fields(kinds[1]), strings.Fields(kinds[2])
}

// plainList is all words, each once; there are about a thousand.
var plainList = sync.OnceValue(func() []string {
	all := slices.Concat(adjectives, nouns, verbs)
	slices.Sort(all)
	return slices.Compact(all)
})

// wordList are so many different words in a random order. Where there are not enough, pairs
// joined by a hyphen are among them.
func wordList(rng *rand.Rand, n int) []string {
	plain := plainList()
	out := slices.Clone(plain)
	if n > len(plain) {
		for _, i := range rng.Perm(len(adjectives) * len(nouns))[:min(n-len(plain), len(adjectives)*len(nouns))] {
			out = append(out, adjectives[i/len(nouns)]+"-"+nouns[i%len(nouns)])
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// randomPair is a key as RULER's: an adjective and a noun.
func randomPair(rng *rand.Rand) string {
	return adjectives[rng.IntN(len(adjectives))] + "-" + nouns[rng.IntN(len(nouns))]
}

// randomNumber has seven digits.
func randomNumber(rng *rand.Rand) string { return strconv.Itoa(1_000_000 + rng.IntN(9_000_000)) }

// randomLetters are n of the 26 letters from first on.
func randomLetters(rng *rand.Rand, first byte, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(rng.IntN(26))
	}
	return string(b)
}

// randomUUID is one of version 4 (RFC 9562, section 5.4).
func randomUUID(rng *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
