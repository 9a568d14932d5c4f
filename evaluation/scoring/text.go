package scoring

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// The official rules are Python programs. These helpers mean by white space, lower
// case and words what Python's strings mean, also outside of ASCII.

// isSpace is str.isspace for one character: Unicode's white space and the four
// separators of ASCII.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// fields is str.split().
func fields(s string) []string { return strings.FieldsFunc(s, isSpace) }

// strip is str.strip().
func strip(s string) string { return strings.TrimFunc(s, isSpace) }

// lower is str.lower(), with the special cases of Unicode that single characters
// cannot express (İ, the final Σ).
func lower(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return cases.Lower(language.Und).String(s)
		}
	}
	return strings.ToLower(s)
}

// isWord is \w of Python's re.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

// punctuation is string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// remove deletes all characters of a set.
func remove(s, set string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(set, r) {
			return -1
		}
		return r
	}, s)
}

// removeArticles replaces the English articles by a blank where they stand as words.
func removeArticles(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		n := strings.IndexFunc(s, func(r rune) bool { return !isWord(r) })
		if n < 0 {
			n = len(s)
		}
		switch word := s[:n]; word {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(word)
		}
		s = s[n:]
		if n = strings.IndexFunc(s, isWord); n < 0 {
			n = len(s)
		}
		out.WriteString(s[:n])
		s = s[n:]
	}
	return out.String()
}

func normalizedWords(s string) []string {
	return fields(removeArticles(remove(lower(s), punctuation)))
}

// Normalized returns a text as SQuAD compares it (Rajpurkar et al. 2016, arXiv:1606.05250,
// evaluate-v1.1.py, normalize_answer): lower case, without punctuation, articles and
// repeated blanks.
func Normalized(s string) string { return strings.Join(normalizedWords(s), " ") }

// FirstLine returns what LongBench keeps of an answer to trec, triviaqa, samsum and
// lsht before it is scored (Bai et al. 2023, arXiv:2308.14508, eval.py): the first
// line that is not empty.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(s, "\n"), "\n")
	return line
}
