package scoring

import "strings"

// porterStem returns the stem of an English word in lower case: the algorithm of
// M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the
// departures from it that NLTK makes (nltk/stem/porter.py, NLTK_EXTENSIONS), since
// rouge_score stems with NLTK.
func porterStem(word string) string {
	if stem, ok := irregular[word]; ok {
		return stem
	}
	if len(word) <= 2 {
		return word
	}
	word = porterPlural(word)
	word = porterPast(word)
	if stem, ok := strings.CutSuffix(word, "y"); ok && len(stem) > 1 && isConsonant(stem, len(stem)-1) {
		word = stem + "i" // step 1c; NLTK asks for a consonant instead of any vowel
	}
	word = porterStep2(word)
	word = applyRule(word, step3)
	word = applyRule(word, step4)
	if stem, ok := strings.CutSuffix(word, "e"); ok { // step 5a
		if m := measure(stem); m > 1 || m == 1 && !endsCVC(stem) {
			word = stem
		}
	}
	if strings.HasSuffix(word, "ll") && measure(word[:len(word)-1]) > 1 { // step 5b
		word = word[:len(word)-1]
	}
	return word
}

// irregular has NLTK's table of irregular forms.
var irregular = map[string]string{
	"sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
	"innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing",
	"cannings": "canning", "canning": "canning", "howe": "howe",
	"proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}

// rule replaces a suffix if what is left before it has a measure of at least m.
type rule struct {
	suffix, replacement string
	m                   int
}

var step2 = []rule{
	{"ational", "ate", 1}, {"tional", "tion", 1}, {"enci", "ence", 1}, {"anci", "ance", 1},
	{"izer", "ize", 1}, {"bli", "ble", 1}, {"alli", "al", 1}, {"entli", "ent", 1}, {"eli", "e", 1},
	{"ousli", "ous", 1}, {"ization", "ize", 1}, {"ation", "ate", 1}, {"ator", "ate", 1},
	{"alism", "al", 1}, {"iveness", "ive", 1}, {"fulness", "ful", 1}, {"ousness", "ous", 1},
	{"aliti", "al", 1}, {"iviti", "ive", 1}, {"biliti", "ble", 1}, {"fulli", "ful", 1},
}

var step3 = []rule{
	{"icate", "ic", 1}, {"ative", "", 1}, {"alize", "al", 1}, {"iciti", "ic", 1},
	{"ical", "ic", 1}, {"ful", "", 1}, {"ness", "", 1},
}

var step4 = []rule{
	{"al", "", 2}, {"ance", "", 2}, {"ence", "", 2}, {"er", "", 2}, {"ic", "", 2}, {"able", "", 2},
	{"ible", "", 2}, {"ant", "", 2}, {"ement", "", 2}, {"ment", "", 2}, {"ent", "", 2}, {"ion", "", 2},
	{"ou", "", 2}, {"ism", "", 2}, {"ate", "", 2}, {"iti", "", 2}, {"ous", "", 2}, {"ive", "", 2}, {"ize", "", 2},
}

// applyRule applies the first rule whose suffix fits; if its condition fails, none.
func applyRule(word string, rules []rule) string {
	for _, r := range rules {
		stem, ok := strings.CutSuffix(word, r.suffix)
		if !ok {
			continue
		}
		if measure(stem) < r.m {
			return word
		}
		if r.suffix == "ion" && !strings.HasSuffix(stem, "s") && !strings.HasSuffix(stem, "t") {
			return word
		}
		return stem + r.replacement
	}
	return word
}

// porterPlural is step 1a.
func porterPlural(word string) string {
	switch {
	case strings.HasSuffix(word, "ies") && len(word) == 4:
		return word[:3] // NLTK: dies becomes die, not di
	case strings.HasSuffix(word, "sses"), strings.HasSuffix(word, "ies"):
		return word[:len(word)-2]
	case strings.HasSuffix(word, "ss"):
		return word
	}
	return strings.TrimSuffix(word, "s")
}

// porterPast is step 1b.
func porterPast(word string) string {
	if strings.HasSuffix(word, "ied") { // NLTK only
		if len(word) == 4 {
			return word[:3]
		}
		return word[:len(word)-2]
	}
	if stem, ok := strings.CutSuffix(word, "eed"); ok {
		if measure(stem) > 0 {
			return stem + "ee"
		}
		return word
	}
	stem, ok := strings.CutSuffix(word, "ed")
	if !ok || !containsVowel(stem) {
		if stem, ok = strings.CutSuffix(word, "ing"); !ok || !containsVowel(stem) {
			return word
		}
	}
	for _, suffix := range []string{"at", "bl", "iz"} {
		if strings.HasSuffix(stem, suffix) {
			return stem + "e"
		}
	}
	if n := len(stem); n >= 2 && stem[n-1] == stem[n-2] && isConsonant(stem, n-1) {
		if strings.IndexByte("lsz", stem[n-1]) < 0 {
			return stem[:n-1]
		}
		return stem
	}
	if measure(stem) == 1 && endsCVC(stem) {
		return stem + "e"
	}
	return stem
}

// porterStep2 is step 2. NLTK takes "alli" before all other rules and runs the step
// again on the result, and counts the l of "logi" to the stem.
func porterStep2(word string) string {
	for {
		stem, ok := strings.CutSuffix(word, "alli")
		if !ok || measure(stem) == 0 {
			break
		}
		word = stem + "al"
	}
	if stem, ok := strings.CutSuffix(word, "logi"); ok {
		if measure(stem+"l") > 0 {
			return stem + "log"
		}
		return word
	}
	return applyRule(word, step2)
}

// isConsonant: a letter other than a, e, i, o, u, and other than y after a consonant.
func isConsonant(word string, i int) bool {
	switch word[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !isConsonant(word, i-1)
	}
	return true
}

// measure counts the changes from vowels to consonants, m in [C](VC)^m[V].
func measure(stem string) int {
	m, vowel := 0, false
	for i := range len(stem) {
		consonant := stem[i] != 'a' && stem[i] != 'e' && stem[i] != 'i' && stem[i] != 'o' && stem[i] != 'u' &&
			(stem[i] != 'y' || i == 0 || vowel)
		if consonant && vowel {
			m++
		}
		vowel = !consonant
	}
	return m
}

func containsVowel(stem string) bool {
	for i := range len(stem) {
		if !isConsonant(stem, i) {
			return true
		}
	}
	return false
}

// endsCVC: consonant, vowel, consonant other than w, x, y; for NLTK also a word of
// vowel and consonant.
func endsCVC(s string) bool {
	n := len(s)
	if n == 2 {
		return !isConsonant(s, 0) && isConsonant(s, 1)
	}
	return n >= 3 && isConsonant(s, n-3) && !isConsonant(s, n-2) && isConsonant(s, n-1) &&
		strings.IndexByte("wxy", s[n-1]) < 0
}
