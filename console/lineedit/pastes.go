package lineedit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown are the characters of a paste: a longer one, and one of several lines, is shown as
// its length.
const maxShown = 200

// pastes are in turn what stands for one, and the paste.
type pastes []string

// shown is what a line shows of a paste.
func (p *pastes) shown(paste []byte) string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(paste))
	text = strings.TrimSuffix(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	length := utf8.RuneCountInString(text)
	if length <= maxShown && !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	mark := fmt.Sprintf("[paste %d: %d characters]", len(*p)/2+1, length)
	*p = append(*p, mark, text)
	return mark
}

// expand puts pastes in the place of their stand-ins.
func (p pastes) expand(line string) string { return strings.NewReplacer(p...).Replace(line) }
