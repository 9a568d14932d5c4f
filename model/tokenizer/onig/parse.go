package onig

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds on patterns, which come with a model's files. Those of real tokenizers
// have less than 2,000 bytes.
const (
	maxPattern = 64 << 10 // bytes
	maxDepth   = 100      // groups and classes in each other
	maxRepeat  = 10_000   // the numbers in {n,m}
)

type kind uint8

const (
	kindEmpty  kind = iota
	kindSet         // one character
	kindCat         // subs one after the other
	kindAlt         // one of subs, the first that leads to a match
	kindRepeat      // sub 0, min to max times (max < 0: any number)
	kindAtomic      // sub 0, without going back into it
	kindLook        // sub 0 matches here (negated: does not), consuming nothing
	kindBehind      // sub 0 matches up to here (negated: does not)
	kindAssert      // a place
)

type node struct {
	kind     kind
	set      runeSet
	fold     bool // the set was a literal written where case does not count
	subs     []*node
	min, max int
	lazy     bool
	negated  bool
	place    place
}

type place uint8

const (
	lineStart      place = iota // ^
	lineEnd                     // $
	textStart                   // \A
	textEnd                     // \z
	lastLineEnd                 // \Z
	wordBoundary                // \b
	noWordBoundary              // \B
)

type parser struct {
	src   string
	at    int
	depth int

	fold, dotAll, extended bool
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", p.at, fmt.Sprintf(format, args...))
}

func (p *parser) more() bool { return p.at < len(p.src) }

func (p *parser) peek(s string) bool { return strings.HasPrefix(p.src[p.at:], s) }

func (p *parser) accept(s string) bool {
	if !p.peek(s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *parser) nextRune() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.at:])
	p.at += n
	return r
}

func parsePattern(src string) (*node, error) {
	if len(src) > maxPattern {
		return nil, fmt.Errorf("%d bytes, at most %d are supported", len(src), maxPattern)
	}
	if !utf8.ValidString(src) {
		return nil, fmt.Errorf("not valid UTF-8")
	}
	p := &parser{src: src}
	n, err := p.alternatives()
	if err == nil && p.more() {
		err = p.errorf("unmatched )")
	}
	return n, err
}

// alternatives parses up to a closing parenthesis, which it leaves, or the end.
// Options set on the way hold to the end of the group.
func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("groups nested more than %d deep", maxDepth)
	}
	fold, dotAll, extended := p.fold, p.dotAll, p.extended
	defer func() {
		p.depth--
		p.fold, p.dotAll, p.extended = fold, dotAll, extended
	}()
	var subs []*node
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		subs = append(subs, n)
		if !p.accept("|") {
			break
		}
	}
	if len(subs) == 1 {
		return subs[0], nil
	}
	return &node{kind: kindAlt, subs: subs}, nil
}

func (p *parser) sequence() (*node, error) {
	var subs []*node
	for p.more() && !p.peek("|") && !p.peek(")") {
		n, err := p.term()
		if err != nil {
			return nil, err
		}
		if n == nil {
			continue
		}
		if subs = append(subs, n); n.kind == kindSet && n.fold {
			if err := p.checkFold(subs); err != nil {
				return nil, err
			}
		}
	}
	if len(subs) == 1 {
		return subs[0], nil
	}
	return &node{kind: kindCat, subs: subs}, nil
}

// checkFold refuses literals at the end of subs that are what one other character
// folds to.
func (p *parser) checkFold(subs []*node) error {
	text := ""
	for i := len(subs) - 1; i >= 0 && len(subs)-i <= 3 && subs[i].kind == kindSet && subs[i].fold; i-- {
		text = foldedText(subs[i].set[0].lo) + text
		if manyFolds()[text] {
			return p.errorf("%q where case does not count is not supported: a single character folds to it", text)
		}
	}
	return nil
}

// term parses one element and its quantifiers; nil for what stands for nothing.
func (p *parser) term() (*node, error) {
	n, err := p.atom()
	if err != nil || n == nil {
		return n, err
	}
	for {
		if p.extended {
			p.skipExtended()
		}
		low, high, interval, ok, err := p.quantifier()
		if err != nil {
			return nil, err
		}
		if !ok {
			return n, nil
		}
		if n.kind == kindLook || n.kind == kindBehind || n.kind == kindAssert {
			return nil, p.errorf("a repeated assertion is not supported")
		}
		r := &node{kind: kindRepeat, subs: []*node{n}, min: low, max: high}
		n = r
		switch {
		case interval && low == high && p.accept("?"):
			// Not lazy: what is repeated n times may also be missing.
			n = &node{kind: kindRepeat, subs: []*node{r}, max: 1}
		case p.accept("?"):
			r.lazy = true
		case !interval && p.accept("+"):
			n = &node{kind: kindAtomic, subs: []*node{r}}
		}
	}
}

// quantifier parses *, +, ? or {n,m}; braces of another form are text.
func (p *parser) quantifier() (low, high int, interval, ok bool, err error) {
	switch {
	case p.accept("*"):
		return 0, -1, false, true, nil
	case p.accept("+"):
		return 1, -1, false, true, nil
	case p.accept("?"):
		return 0, 1, false, true, nil
	}
	start := p.at
	if !p.accept("{") {
		return 0, 0, false, false, nil
	}
	low, hasLow := p.parseNumber()
	high, hasHigh := low, hasLow
	if p.accept(",") {
		if high, hasHigh = p.parseNumber(); !hasHigh {
			high = -1
		}
	}
	if !hasLow && !hasHigh || !p.accept("}") {
		p.at = start
		return 0, 0, false, false, nil
	}
	if low > maxRepeat || high > maxRepeat {
		return 0, 0, false, false, p.errorf("repetition of more than %d", maxRepeat)
	}
	if high >= 0 && low > high {
		return 0, 0, false, false, p.errorf("{%d,%d}: want the smaller number first", low, high)
	}
	return low, high, true, true, nil
}

func (p *parser) parseNumber() (n int, ok bool) {
	for p.more() && '0' <= p.src[p.at] && p.src[p.at] <= '9' {
		n = min(n*10+int(p.src[p.at]-'0'), maxRepeat+1)
		p.at++
		ok = true
	}
	return n, ok
}

func (p *parser) skipExtended() {
	for p.more() {
		switch c := p.src[p.at]; {
		case c == ' ' || '\t' <= c && c <= '\r':
			p.at++
		case c == '#':
			if i := strings.IndexByte(p.src[p.at:], '\n'); i >= 0 {
				p.at += i + 1
			} else {
				p.at = len(p.src)
			}
		default:
			return
		}
	}
}

func (p *parser) atom() (*node, error) {
	if p.extended {
		p.skipExtended()
		if !p.more() || p.peek("|") || p.peek(")") {
			return nil, nil
		}
	}
	switch c := p.nextRune(); c {
	case '(':
		return p.parseGroup()
	case '[':
		set, err := p.parseClass()
		return &node{kind: kindSet, set: set}, err
	case '.':
		if p.dotAll {
			return &node{kind: kindSet, set: runeSet(nil).negated()}, nil
		}
		return &node{kind: kindSet, set: single('\n').negated()}, nil
	case '^':
		return &node{kind: kindAssert, place: lineStart}, nil
	case '$':
		return &node{kind: kindAssert, place: lineEnd}, nil
	case '*', '+', '?':
		return nil, p.errorf("%c with nothing to repeat", c)
	case '\\':
		return p.escape()
	default:
		return p.literal(c)
	}
}

func (p *parser) literal(r rune) (*node, error) {
	if !p.fold {
		return &node{kind: kindSet, set: single(r)}, nil
	}
	set, err := p.folded(single(r))
	return &node{kind: kindSet, set: set, fold: true}, err
}

// folded adds to a set what differs from its characters by case alone.
func (p *parser) folded(s runeSet) (runeSet, error) {
	if many := intersect(s, foldsToMany); len(many) > 0 {
		return nil, p.errorf("%q where case does not count is not supported: it folds to several characters", many[0].lo)
	}
	return foldSet(s), nil
}

// parseGroup parses what follows an opening parenthesis.
func (p *parser) parseGroup() (*node, error) {
	n := &node{}
	fold, dotAll, extended := p.fold, p.dotAll, p.extended
	defer func() { p.fold, p.dotAll, p.extended = fold, dotAll, extended }()
	switch {
	case !p.peek("?"):
	case p.accept("?#"):
		i := strings.IndexByte(p.src[p.at:], ')')
		if i < 0 {
			return nil, p.errorf("comment without an end")
		}
		p.at += i + 1
		return nil, nil
	case p.accept("?:"):
	case p.accept("?>"):
		n.kind = kindAtomic
	case p.accept("?="):
		n.kind = kindLook
	case p.accept("?!"):
		n.kind, n.negated = kindLook, true
	case p.accept("?<="):
		n.kind = kindBehind
	case p.accept("?<!"):
		n.kind, n.negated = kindBehind, true
	case p.accept("?<"), p.accept("?'"):
		i := strings.IndexAny(p.src[p.at:], ">'")
		if i <= 0 {
			return nil, p.errorf("group name without an end")
		}
		p.at += i + 1
	default:
		p.at++
		done, err := p.options()
		if err != nil {
			return nil, err
		}
		if done {
			// (?i) holds to the end of the group, alternatives included.
			return p.alternatives()
		}
	}
	sub, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		return nil, p.errorf("missing )")
	}
	if n.kind == kindEmpty {
		// A node of its own, so that a quantifier counts for all of it and case
		// folding does not reach across.
		return &node{kind: kindCat, subs: []*node{sub}}, nil
	}
	n.subs = []*node{sub}
	return n, nil
}

// options parses i-m:; done tells that they end with the parenthesis.
func (p *parser) options() (done bool, err error) {
	on := true
	for p.more() {
		switch c := p.nextRune(); c {
		case '-':
			on = false
		case 'i':
			p.fold = on
		case 'm':
			p.dotAll = on
		case 'x':
			p.extended = on
		case ':':
			return false, nil
		case ')':
			return true, nil
		default:
			return false, p.errorf("group (?%c is not supported", c)
		}
	}
	return false, p.errorf("missing )")
}
