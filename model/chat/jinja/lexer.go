package jinja

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	kindEOF kind = iota
	kindData
	kindBlockBegin
	kindBlockEnd
	kindPrintBegin
	kindPrintEnd
	kindName
	kindString
	kindNumber
	kindOperator
)

// token is one word of a template. text is as it stands there.
type token struct {
	kind kind
	text string
	val  value // of a string or number
	line int
}

// kindNames are what errors call tokens that are all alike.
var kindNames = map[kind]string{kindEOF: "the end of the template", kindBlockBegin: "{%", kindBlockEnd: "%}", kindPrintBegin: "{{", kindPrintEnd: "}}"}

// found describes a token for an error.
func (t token) found() string {
	if name, ok := kindNames[t.kind]; ok {
		return name
	}
	switch t.kind {
	case kindString:
		return "the string " + quoted(t.val.(string))
	case kindNumber:
		return "the number " + quoted(t.text)
	}
	return quoted(t.text)
}

// lexer cuts a template into tokens. White space around tags goes as trim_blocks and
// lstrip_blocks say.
type lexer struct {
	source    string
	pos       int
	line      int // of pos
	tokens    []token
	lineStart bool // what was read last ended a line
}

func lex(source string) ([]token, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("source of %d bytes, want at most %d", len(source), maxSource)
	}
	if !utf8.ValidString(source) {
		return nil, fmt.Errorf("source is not UTF-8")
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.source) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.addToken(kindEOF, "", nil)
	return l.tokens, nil
}

func (l *lexer) addToken(k kind, text string, v value) {
	l.tokens = append(l.tokens, token{k, text, v, l.line})
}

// skip moves to a later byte.
func (l *lexer) skip(to int) {
	l.line += strings.Count(l.source[l.pos:to], "\n")
	l.pos = to
}

func (l *lexer) failure(format string, args ...any) error {
	return &positioned{l.line, fmt.Errorf(format, args...)}
}

var (
	rawBegin = regexp.MustCompile(`^\{%[-+]?` + space + `*raw` + space + `*(?:-%\}` + space + `*|%\})`)
	rawEnd   = regexp.MustCompile(`\{%([-+]?)` + space + `*endraw` + space + `*(?:\+%\}|-%\}` + space + `*|%\}\n?)`)
)

// space is what Python's regular expressions take for white space.
const (
	spaces = `\s\x{0b}\x{1c}-\x{1f}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	space  = `[` + spaces + `]`
)

// next reads text and the tag after it.
func (l *lexer) next() error {
	begin := nextTag(l.source, l.pos)
	text := l.source[l.pos:begin]
	if begin == len(l.source) {
		l.addToken(kindData, text, nil)
		l.skip(begin)
		return nil
	}
	open, sign := l.source[begin+1], byte(0)
	if begin+2 < len(l.source) {
		sign = l.source[begin+2]
	}
	if kept := l.trimEnd(text, sign, open == '{'); kept != "" {
		l.addToken(kindData, kept, nil)
	}
	l.skip(begin)
	if open == '%' {
		if m := rawBegin.FindString(l.source[begin:]); m != "" {
			return l.raw(begin + len(m))
		}
	}
	body := begin + 2
	if sign == '-' || sign == '+' {
		body++
	}
	switch open {
	case '#':
		return l.comment(body)
	case '{':
		l.addToken(kindPrintBegin, "", nil)
		return l.tag(body, "}}", kindPrintEnd)
	}
	l.addToken(kindBlockBegin, "", nil)
	return l.tag(body, "%}", kindBlockEnd)
}

// nextTag returns where the next tag or comment starts, or len(s).
func nextTag(s string, i int) int {
	for ; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return len(s)
}

// trimEnd removes white space from the end of the text before a tag.
func (l *lexer) trimEnd(text string, sign byte, prints bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign != '+' && !prints:
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || l.lineStart) && strings.TrimLeftFunc(text[line:], isSpace) == "" {
			return text[:line]
		}
	}
	return text
}

// after moves behind the end of a tag at byte end, and behind the white space that
// goes with it: all after a "-", one line break after a block or comment.
func (l *lexer) after(end int, sign byte, lineBreak bool) {
	rest := l.source[end:]
	switch {
	case sign == '-':
		end += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
	case sign != '+' && lineBreak && strings.HasPrefix(rest, "\n"):
		end++
	}
	l.skip(end)
	l.lineStart = l.source[end-1] == '\n'
}

func (l *lexer) comment(body int) error {
	k := strings.Index(l.source[body:], "#}")
	if k < 0 {
		return l.failure("found a comment without an end, want #}")
	}
	var sign byte
	if k > 0 {
		sign = l.source[body+k-1]
	}
	l.after(body+k+2, sign, true)
	return nil
}

func (l *lexer) raw(body int) error {
	m := rawEnd.FindStringSubmatchIndex(l.source[body:])
	if m == nil {
		return l.failure("found a raw block without an end, want {%% endraw %%}")
	}
	l.skip(body)
	text := l.source[body : body+m[0]]
	var sign byte
	if m[2] < m[3] {
		sign = l.source[body+m[2]]
	}
	l.lineStart = l.source[body-1] == '\n'
	if kept := l.trimEnd(text, sign, false); kept != "" {
		l.addToken(kindData, kept, nil)
	}
	l.skip(body + m[1])
	l.lineStart = l.source[l.pos-1] == '\n'
	return nil
}

// operators, longer ones first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// tag reads the words of a tag. Its end counts only outside all brackets.
func (l *lexer) tag(body int, end string, endKind kind) error {
	l.skip(body)
	first := l.line
	var brackets []byte
	for l.pos < len(l.source) {
		rest := l.source[l.pos:]
		if len(brackets) == 0 {
			sign, n := rest[0], 0
			if sign == '-' || sign == '+' && endKind == kindBlockEnd {
				n = 1
			}
			if strings.HasPrefix(rest[n:], end) {
				l.addToken(endKind, "", nil)
				if n == 0 {
					sign = 0
				}
				l.after(l.pos+n+2, sign, endKind == kindBlockEnd)
				return nil
			}
		}
		if err := l.readWord(rest, &brackets); err != nil {
			return err
		}
	}
	l.line = first
	return l.failure("found a tag without an end, want %s", end)
}

var closing = map[byte]byte{'(': ')', '[': ']', '{': '}'}

// readWord reads one word of a tag.
func (l *lexer) readWord(rest string, brackets *[]byte) error {
	c, n := utf8.DecodeRuneInString(rest)
	var k kind
	var v value
	var err error
	switch {
	case isSpace(c):
		l.skip(l.pos + n)
		return nil
	case c >= '0' && c <= '9':
		k = kindNumber
		v, n, err = readNumber(rest, l.pos > 0 && l.source[l.pos-1] == '.')
	case c == '_' || unicode.IsLetter(c):
		k = kindName
		if n = strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.In(r, unicode.L, unicode.Nd, unicode.Nl, unicode.Mn, unicode.Mc)
		}); n < 0 {
			n = len(rest)
		}
	case c == '\'' || c == '"':
		k = kindString
		v, n, err = readString(rest)
	default:
		for _, op := range operators {
			if strings.HasPrefix(rest, op) {
				return l.operator(op, brackets)
			}
		}
		err = fmt.Errorf("found the character %s, want a name, a value or an operator", quoted(string(c)))
	}
	if err != nil {
		return l.failure("%w", err)
	}
	l.addToken(k, rest[:n], v)
	l.skip(l.pos + n)
	return nil
}

func (l *lexer) operator(op string, brackets *[]byte) error {
	stack := *brackets
	switch c := op[0]; c {
	case '(', '[', '{':
		if len(stack) == maxDepth {
			return l.failure("found brackets nested more than %d deep", maxDepth)
		}
		stack = append(stack, closing[c])
	case ')', ']', '}':
		if len(stack) == 0 {
			return l.failure("found %q without an opening bracket", op)
		}
		if want := stack[len(stack)-1]; want != c {
			return l.failure("found %q, want %q", op, string(want))
		}
		stack = stack[:len(stack)-1]
	}
	*brackets = stack
	l.addToken(kindOperator, op, nil)
	l.skip(l.pos + len(op))
	return nil
}
