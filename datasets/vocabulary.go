package datasets

import (
	_ "embed" // for vocabulary.txt
	"fmt"
	"slices"
	"strings"
)

// vocabularyText is also what the reference model's tokenizer.json is made of,
// so ids and words have this one source.
//
//go:embed vocabulary.txt
var vocabularyText string

var words = strings.Fields(vocabularyText)

// The ids of the template, by the name they have in vocabulary.txt.
const (
	tokBOS        int32 = 1
	tokEOT        int32 = 2 // ends every turn; the answer's end token
	tokUser       int32 = 3
	tokHeader     int32 = 4
	tokAssistant  int32 = 5
	tokNewline    int32 = 6
	tokContext    int32 = 7
	tokContextEnd int32 = 8
	tokAsk        int32 = 9
	tokChain      int32 = 11
	tokCopy       int32 = 12
	tokMarks      int32 = 13
	tokPassage    int32 = 14
	tokPassageEnd int32 = 15
	tokLink       int32 = 17
	tokFirst      int32 = 18 // the first four ordinals
	keysBegin     int32 = 32
	valuesBegin   int32 = 96
	fillersBegin  int32 = 320
	fillersEnd    int32 = 384
)

// The ids of the words after the fillers.
const (
	tokSummary     int32 = 384
	tokMost        int32 = 385
	tokFifth       int32 = 386 // the ordinals from here to the eighth
	moreKeysBegin  int32 = 400
	coloursBegin   int32 = 464
	vocabularySize       = 480
)

// Vocabulary returns the words of the reference model; a word's index is its id.
// The slice belongs to the caller.
func Vocabulary() []string { return slices.Clone(words) }

// Knows says whether a model with a vocabulary of so many words knows the words of the tasks.
func Knows(vocab int) bool { return vocab == vocabularySize }

// WordsText writes ids of the tasks' words as words with single spaces between them;
// the tokenizer of a model that knows them reads that text back to the same ids.
// An id outside Vocabulary is an error.
func WordsText(ids []int32) (string, error) {
	if err := checkIDs("ids", ids, vocabularySize); err != nil {
		return "", fmt.Errorf("text of token ids: %w", err)
	}
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[id])
	}
	return b.String(), nil
}

// checkIDs returns an error that names the field and the first id outside
// 0 … vocab-1.
func checkIDs(field string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%s: element %d: got id %d, want 0 to %d", field, i, id, vocab-1)
		}
	}
	return nil
}
