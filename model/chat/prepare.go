package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// prepare checks the limits of a template's source, and rewrites what gonja gets
// wrong:
//
//   - White space around tags is removed here, as trim_blocks and lstrip_blocks
//     say; gonja also removes what stands between two tags of one line. The
//     line breaks that go are put into a comment, so that errors name the right
//     line.
//   - Negative indices: x[-1] becomes x.item_at(-1), a method this package gives
//     lists and strings. gonja finds no element at the most negative index of a
//     list (the only one, in messages[-1] of one message), and takes strings for
//     bytes.
//   - A method call on brackets, (a ~ b).strip(), which gonja parses as a call of
//     nothing, becomes one on a function's result: grouped(a ~ b).strip().
func prepare(source string) (string, error) {
	if len(source) > maxSource {
		return "", fmt.Errorf("source of %d bytes, at most %d are supported", len(source), maxSource)
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source = strings.TrimSuffix(source, "\n")

	p := preparer{lineStart: true}
	for i := 0; i < len(source); {
		begin := nextTag(source, i)
		data := p.trimStart(source[i:begin])
		if begin == len(source) {
			p.out.WriteString(data)
			break
		}
		end, err := p.tag(source, begin, data)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", 1+strings.Count(source[:begin], "\n"), err)
		}
		i = end
	}
	return p.out.String(), nil
}

// preparer is where prepare has got to.
type preparer struct {
	out       strings.Builder
	trim      trimming // of the text after the last tag
	lineStart bool     // the text starts at the start of a line
	blocks    int      // that are open
}

type trimming int

const (
	trimNothing trimming = iota
	trimNewline          // one line break, after a block or a comment
	trimSpace            // all white space, after a tag that ends in -
)

// trimStart removes white space from the start of the text after a tag.
func (p *preparer) trimStart(text string) string {
	rest := text
	switch p.trim {
	case trimNewline:
		rest = strings.TrimPrefix(text, "\n")
	case trimSpace:
		rest = strings.TrimLeftFunc(text, isPythonSpace)
	default:
		return text // at the start of the source, or after a tag that keeps its space
	}
	gone := text[:len(text)-len(rest)]
	p.lineStart = strings.HasSuffix(gone, "\n")
	p.breaks(strings.Count(gone, "\n"))
	return rest
}

// breaks writes line breaks that render to nothing.
func (p *preparer) breaks(n int) {
	if n > 0 {
		p.out.WriteString("{#" + strings.Repeat("\n", n) + "#}")
	}
}

// trimEnd removes white space from the end of the text before a tag, and returns
// the line breaks that went.
func (p *preparer) trimEnd(text string, sign byte, variable bool) (rest string, breaks int) {
	rest = text
	switch {
	case sign == '-':
		rest = strings.TrimRightFunc(text, isPythonSpace)
	case sign != '+' && !variable:
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || p.lineStart) && strings.TrimLeftFunc(text[line:], isPythonSpace) == "" {
			rest = text[:line]
		}
	}
	return rest, strings.Count(text[len(rest):], "\n")
}

// tag writes the text before the tag at byte begin, and the tag, and returns
// where it ends.
func (p *preparer) tag(source string, begin int, text string) (end int, err error) {
	var sign byte
	if begin+2 < len(source) {
		sign = source[begin+2]
	}
	kind := source[begin+1]
	text, breaks := p.trimEnd(text, sign, kind == '{')
	p.out.WriteString(text)
	p.breaks(breaks)
	p.lineStart = false
	if kind == '#' {
		k := strings.Index(source[begin+2:], "#}")
		if k < 0 {
			return 0, errors.New("comment without an end")
		}
		end = begin + 2 + k + 2
		p.breaks(strings.Count(source[begin:end], "\n"))
		p.after(source[end-3], trimNewline)
		return end, nil
	}
	if open := rawBlock.FindStringSubmatch(source[begin:]); open != nil {
		return p.raw(source, begin, open)
	}
	t, err := scanTag(source, begin)
	if err != nil {
		return 0, err
	}
	p.out.WriteString(source[begin:begin+2] + t.text)
	p.breaks(strings.Count(source[begin:t.end], "\n") - strings.Count(t.text, "\n"))
	if kind == '{' {
		p.after(t.sign, trimNothing)
		return t.end, nil
	}
	p.after(t.sign, trimNewline)
	if p.blocks += blockStep(source[begin:t.end]); p.blocks > maxDepth {
		return 0, fmt.Errorf("blocks nested more than %d deep", maxDepth)
	}
	return t.end, nil
}

// after sets how the text after a tag is trimmed: as usual, or as the tag's sign
// says.
func (p *preparer) after(sign byte, usual trimming) {
	switch p.trim = usual; {
	case sign == '-':
		p.trim = trimSpace
	case sign == '+' && usual == trimNewline:
		p.trim = trimNothing
	}
}

// raw writes a raw block, which open matches the start of.
func (p *preparer) raw(source string, begin int, open []string) (end int, err error) {
	rest := source[begin+len(open[0]):]
	k := rawEnd.FindStringSubmatchIndex(rest)
	if k == nil {
		return 0, errors.New("raw block without an end")
	}
	p.trim = trimNothing
	if open[1] == "-" {
		p.trim = trimSpace
	}
	text := p.trimStart(rest[:k[0]])
	var sign byte
	if k[2] < k[3] {
		sign = rest[k[2]]
	}
	text, _ = p.trimEnd(text, sign, false)
	p.lineStart = false
	if text != "" { // gonja panics at an empty one
		p.out.WriteString("{% raw %}" + text + "{% endraw %}")
	}
	sign = 0
	if k[4] < k[5] {
		sign = rest[k[4]]
	}
	p.after(sign, trimNewline)
	return begin + len(open[0]) + k[1], nil
}

var (
	rawBlock  = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(-?)%\}`)
	rawEnd    = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)
	blockName = regexp.MustCompile(`^\{%[-+]?\s*(\w+)`)
)

// nextTag returns where the next tag or comment starts, or len(s).
func nextTag(s string, i int) int {
	for ; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return len(s)
}

// blockStep tells how a block tag changes the depth.
func blockStep(tag string) int {
	m := blockName.FindStringSubmatch(tag)
	if m == nil {
		return 0
	}
	switch name := m[1]; {
	case strings.HasPrefix(name, "end"):
		return -1
	case name == "set" && strings.Contains(tag, "="), name == "else", name == "elif", name == "do", name == "break", name == "continue":
		return 0
	}
	return 1
}

type scannedTag struct {
	text string // without the opening and its sign, with indices rewritten
	sign byte   // before the end: -, + or 0
	end  int    // in the source
}

// scanTag reads the tag that starts at byte begin.
func scanTag(s string, begin int) (scannedTag, error) {
	var out strings.Builder
	closing := "}}"
	start := begin + 2
	if s[begin+1] == '%' {
		closing = "%}"
	}
	if start < len(s) && (s[start] == '-' || s[start] == '+' && closing == "%}") {
		start++
	}
	depth, code := 0, 0
	word := ""
	operand := false // what stands before is a value
	for i := start; i < len(s); {
		if depth == 0 {
			if strings.HasPrefix(s[i:], closing) {
				out.WriteString(closing)
				return scannedTag{out.String(), 0, i + 2}, nil
			}
			if c := s[i]; (c == '-' || c == '+' && closing == "%}") && strings.HasPrefix(s[i+1:], closing) {
				out.WriteString(closing)
				return scannedTag{out.String(), c, i + 3}, nil
			}
		}
		if code++; code > maxTag {
			return scannedTag{}, fmt.Errorf("expression of more than %d bytes", maxTag)
		}
		c := s[i]
		switch {
		case c == '"' || c == '\'':
			end := stringEnd(s, i)
			out.WriteString(s[i:end])
			i = end
			operand = true
			continue
		case isWord(c):
			word = ""
			for i < len(s) && isWord(s[i]) {
				word += s[i : i+1]
				i++
			}
			out.WriteString(word)
			operand = !operators[word]
			continue
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			// Does not end an operand. gonja knows no line break before a name.
			c = ' '
		case c == '[' && operand && negativeIndex.MatchString(s[i:]):
			m := negativeIndex.FindStringSubmatch(s[i:])
			out.WriteString(".item_at(-" + m[1] + ")")
			i += len(m[0])
			continue
		case c == '(' || c == '[' || c == '{':
			if c == '(' && !operand && postfixAfter(s, i) {
				out.WriteString(" grouped")
			}
			if depth++; depth > maxDepth {
				return scannedTag{}, fmt.Errorf("brackets nested more than %d deep", maxDepth)
			}
			operand = false
		case c == ')' || c == ']' || c == '}':
			depth = max(0, depth-1)
			operand = true
		default:
			operand = false
		}
		out.WriteByte(c)
		i++
	}
	return scannedTag{}, fmt.Errorf("no %s at the end of an expression or block", closing)
}

var negativeIndex = regexp.MustCompile(`^\[\s*-\s*(\d{1,9})\s*\]`)

// operators are words after which a bracket opens a list, not an index.
var operators = map[string]bool{
	"in": true, "not": true, "and": true, "or": true, "is": true, "if": true, "else": true, "elif": true,
	"for": true, "set": true, "do": true, "call": true, "filter": true, "with": true,
}

// postfixAfter tells whether the bracket that opens at byte i is followed by a
// method or an index.
func postfixAfter(s string, i int) bool {
	depth := 0
	for limit := min(len(s), i+maxTag); i < limit; {
		switch s[i] {
		case '"', '\'':
			i = stringEnd(s, i)
			continue
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				rest := strings.TrimLeft(s[i+1:], " \t\r\n")
				return strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "[")
			}
		}
		i++
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// stringEnd returns the end of the string literal that starts at byte i.
func stringEnd(s string, i int) int {
	quote := s[i]
	for i++; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		}
	}
	return len(s)
}
