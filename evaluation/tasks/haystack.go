package tasks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"glimpse/datasets"
)

// haystack is running text, word by word.
type haystack struct{ words []string }

// maxHaystack is how many words are read of data: enough for a million tokens.
const maxHaystack = 2 << 20

// readHaystack reads the text of a file or folder. Fields say where its rows have it, where
// they are not plain texts.
func readHaystack(path string, fields []string) (*haystack, error) {
	f, err := datasets.ParseFields(fields)
	if err != nil {
		return nil, err
	}
	h := new(haystack)
	for record, err := range readEach(func() (*datasets.RecordReader, error) { return datasets.OpenRecords(path, datasets.FormatAuto, f) }) {
		if err != nil {
			return nil, err
		}
		if record.Text == "" {
			return nil, record.Row.Fail(errors.New("got no text, want one for the haystack"))
		}
		h.words = append(h.words, strings.Fields(record.Text)...)
		if len(h.words) >= maxHaystack {
			break
		}
	}
	if len(h.words) < 100 {
		return nil, fmt.Errorf("%s: got %d words, want at least 100 for a haystack", path, len(h.words))
	}
	return h, nil
}

// takeWords is n words from the place at on; after the last word the first one follows.
func (h *haystack) takeWords(at, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = h.words[(at+i)%len(h.words)]
	}
	return out
}

// sentences joins words to sentences, which end where a word ends with a full stop, a
// question or an exclamation mark.
func sentences(words []string) []string {
	var out []string
	from := 0
	for i, w := range words {
		end := strings.TrimRight(w, `"')]”’`)
		if i == len(words)-1 || end != "" && strings.ContainsRune(".?!", rune(end[len(end)-1])) {
			out = append(out, strings.Join(words[from:i+1], " "))
			from = i + 1
		}
	}
	return out
}

// Parts of the sentences that made haystacks consist of.
var (
	storyPeople = strings.Fields("traders sailors gardeners teachers farmers builders musicians travellers painters neighbours")
	storyWho    = []string{"The baker", "My uncle", "An old captain", "The librarian", "Our guide", "The watchmaker", "A young engineer", "The innkeeper", "Her brother", "The mayor", "A quiet shepherd", "The tailor"}
	storyDid    = []string{"walked slowly to", "wrote a long letter about", "often spoke of", "drew a careful map of", "remembered the smell of", "never went back to", "spent the winter near", "repaired the roof of", "asked everyone about", "counted the steps to", "planted two trees beside", "told a story about"}
	storyWhat   = []string{"the harbour", "the stone bridge", "the empty market", "the northern valley", "a small museum", "the railway station", "the old mill", "the botanical garden", "the lighthouse", "the village school", "the frozen lake", "the bell tower"}
	storyWhen   = []string{"before the rain began", "after the long summer", "while the others slept", "on the first day of spring", "when the wind had turned", "late in the evening", "during the harvest", "as the fog came in", "many years ago", "without telling anyone"}
	storyAlso   = []string{"It took longer than anyone had expected.", "Nobody thought much of it at the time.", "The bread was still warm.", "There were letters on the table and a lamp in the window.", "Some people say it happened differently.", "The road was wet and the carts moved slowly.", "That was how most days ended."}
)

// makeHaystack makes text of about so many words.
func makeHaystack(rng *rand.Rand, words int) *haystack {
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	h := new(haystack)
	for len(h.words) < words {
		var sentence string
		switch rng.IntN(4) {
		case 0:
			sentence = pick(storyAlso)
		case 1:
			sentence = fmt.Sprintf("%s and %d %s %s %s.", pick(storyWho), 2+rng.IntN(30), pick(storyPeople), pick(storyDid), pick(storyWhat))
		default:
			sentence = fmt.Sprintf("%s %s %s %s.", pick(storyWho), pick(storyDid), pick(storyWhat), pick(storyWhen))
		}
		h.words = append(h.words, strings.Fields(sentence)...)
	}
	return h
}

// fillerWords bring prompts to their lengths. They are one token each in most vocabularies;
// for others the last one of a filler may be another, of fillerEnds.
var (
	fillerWords = strings.Fields("and so the day went on and the sun was in the sky and all was well")
	fillerEnds  = []string{"", "a", "oh", "ah,", "well", "there"} // the first: as it comes
)

// filler is so many words. The variant is that of the last.
func filler(n, variant int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fillerWords[i%len(fillerWords)]
	}
	if n > 0 && variant > 0 {
		out[n-1] = fillerEnds[variant]
	}
	return out
}
