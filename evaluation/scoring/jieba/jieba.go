package jieba

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"glimpse/internal/regularfile"
)

// Segmenter holds a dictionary and a character model. It is not changed after
// [Open] and may be used by many goroutines at once.
type Segmenter struct {
	freq     map[string]int32 // how often a word was counted; 0: only a prefix of words
	logTotal float64          // logarithm of the sum of all counts
	hmm      model
}

// Open reads dict.txt, finalseg/prob_start.py, finalseg/prob_trans.py and
// finalseg/prob_emit.py from dir, the folder of the Python package. An error
// names the file and, for the dictionary, the line.
func Open(dir string) (*Segmenter, error) {
	s := &Segmenter{}
	if err := s.readDictionary(filepath.Join(dir, "dict.txt")); err != nil {
		return nil, err
	}
	if err := s.hmm.readModel(filepath.Join(dir, "finalseg")); err != nil {
		return nil, err
	}
	return s, nil
}

// maxFile bounds the files of jieba; the largest dictionary has 8.6 MB.
const maxFile = 64 << 20

// readDictionary reads lines of WORD COUNT [TAG].
func (s *Segmenter) readDictionary(path string) error {
	data, err := regularfile.Read(path, maxFile)
	if err != nil {
		return fmt.Errorf("jieba dictionary: %w", err)
	}
	s.freq = make(map[string]int32, bytes.Count(data, []byte("\n"))*3/2)
	var total int64
	number := 0
	// Words are parts of one string, so that half a million keys are not copied.
	for line := range strings.Lines(string(data)) {
		number++
		word, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		count, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(count, 10, 32)
		if !ok || word == "" || err != nil || n < 0 {
			return fmt.Errorf("%s:%d: %q, want WORD COUNT [TAG]", path, number, strings.TrimSpace(line))
		}
		s.freq[word] = int32(n)
		total += n
		for i := range word {
			if i == 0 {
				continue
			}
			if _, known := s.freq[word[:i]]; !known {
				s.freq[word[:i]] = 0
			}
		}
	}
	if total == 0 {
		return fmt.Errorf("%s: no words", path)
	}
	s.logTotal = math.Log(float64(total))
	return nil
}

// Cut returns the words of text in order; joined they are text. It is
// jieba.cut(text, cut_all=False, HMM=True).
func (s *Segmenter) Cut(text string) []string {
	var words []string
	for len(text) > 0 {
		n := span(text, inDictionaryBlock)
		if n > 0 {
			words = s.cutBlock(words, text[:n])
			text = text[n:]
			continue
		}
		// Outside of blocks every character is a word, and so is a line end of two.
		n = 2
		if !strings.HasPrefix(text, "\r\n") {
			n = firstRune(text)
		}
		words = append(words, text[:n])
		text = text[n:]
	}
	return words
}

// inDictionaryBlock says which characters are looked up in the dictionary
// (re_han_default in jieba/__init__.py).
func inDictionaryBlock(r rune) bool {
	return isHan(r) || isASCIIAlnum(r) || strings.ContainsRune("+#&._%-", r)
}

func isHan(r rune) bool { return r >= 0x4E00 && r <= 0x9FD5 }

func isASCIIAlnum(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// span returns the length in bytes of the longest prefix whose characters are all in a set.
func span(text string, in func(rune) bool) int {
	for i, r := range text {
		if !in(r) {
			return i
		}
	}
	return len(text)
}

func firstRune(text string) int {
	for i := range text {
		if i > 0 {
			return i
		}
	}
	return len(text)
}

// cutBlock appends the words of one block. Runs of single characters on the most
// probable path go through the character model unless the dictionary has the run.
func (s *Segmenter) cutBlock(words []string, block string) []string {
	at := offsets(block)
	next := s.route(block, at)
	single := 0 // where the run of single characters begins
	flush := func(end int) {
		run := block[at[single]:at[end]]
		switch {
		case end == single:
		case end == single+1:
			words = append(words, run)
		case s.freq[run] == 0:
			words = s.hmm.cutRun(words, run)
		default:
			for i := single; i < end; i++ {
				words = append(words, block[at[i]:at[i+1]])
			}
		}
	}
	x := 0
	for x < len(next) {
		y := next[x]
		if y-x > 1 {
			flush(x)
			words = append(words, block[at[x]:at[y]])
			single = y
		}
		x = y
	}
	flush(x)
	return words
}

// offsets returns where each character begins, and the length at the end.
func offsets(text string) []int {
	at := make([]int, 0, len(text)+1)
	for i := range text {
		at = append(at, i)
	}
	return append(at, len(text))
}

// route returns, for each character, where the word that begins there ends on the
// most probable path. Of equally probable paths the one with the longer word wins.
func (s *Segmenter) route(block string, at []int) []int {
	n := len(at) - 1
	best := make([]float64, n+1)
	next := make([]int, n)
	for k := n - 1; k >= 0; k-- {
		best[k] = math.Inf(-1)
		consider := func(end int, count int32) {
			p := math.Log(float64(max(count, 1))) - s.logTotal + best[end]
			if p >= best[k] {
				best[k], next[k] = p, end
			}
		}
		found := false
		for end := k + 1; end <= n; end++ {
			count, known := s.freq[block[at[k]:at[end]]]
			if !known {
				break
			}
			if count > 0 {
				consider(end, count)
				found = true
			}
		}
		if !found {
			consider(k+1, 0)
		}
	}
	return next
}
