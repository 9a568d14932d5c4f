package constraint

import (
	"slices"
)

// An expr is a regular expression over bytes that may also name rules. It is not changed
// once made, and may be part of several others.
type expr struct {
	kind     exprKind
	text     string  // literal
	class    byteSet // class
	list     []*expr // sequence, alternation
	min, max int     // repetition of list[0]; unbounded: no upper bound
	rule     *rule   // reference

	automaton *automaton // finite
}

type exprKind uint8

const (
	literal exprKind = iota
	class
	sequence
	alternation
	repetition
	reference
	finite
)

const unbounded = -1

type byteSet [4]uint64

func (s *byteSet) addRange(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// ranges calls yield for the maximal ranges of the set in order.
func (s *byteSet) ranges(yield func(lo, hi byte)) {
	for b := 0; b < 256; b++ {
		if !s.has(byte(b)) {
			continue
		}
		lo := b
		for b < 255 && s.has(byte(b+1)) {
			b++
		}
		yield(byte(lo), byte(b))
	}
}

// never matches no text, empty only the empty one.
var (
	never = &expr{kind: alternation}
	empty = &expr{kind: literal}
)

func (x *expr) isNever() bool { return x.kind == alternation && len(x.list) == 0 }

func lit(s string) *expr { return &expr{kind: literal, text: s} }

// byteIn matches one byte of a set written as pairs of bounds: "09af" is [0-9a-f].
func byteIn(bounds string) *expr {
	x := &expr{kind: class}
	for i := 0; i < len(bounds); i += 2 {
		x.class.addRange(bounds[i], bounds[i+1])
	}
	return x
}

func ref(r *rule) *expr { return &expr{kind: reference, rule: r} }

func seq(list ...*expr) *expr {
	var out []*expr
	for _, x := range list {
		switch {
		case x.isNever():
			return never
		case x == empty:
		case x.kind == sequence:
			out = append(out, x.list...)
		default:
			out = append(out, x)
		}
	}
	switch len(out) {
	case 0:
		return empty
	case 1:
		return out[0]
	}
	return &expr{kind: sequence, list: out}
}

func alt(list ...*expr) *expr {
	var out []*expr
	for _, x := range list {
		if x.kind == alternation {
			out = append(out, x.list...)
		} else {
			out = append(out, x)
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return &expr{kind: alternation, list: out}
}

func opt(x *expr) *expr { return rep(x, 0, 1) }

func rep(x *expr, lo, hi int) *expr {
	switch {
	case hi == 0, x.isNever() && lo == 0, x == empty:
		return empty
	case x.isNever():
		return never
	case lo == 1 && hi == 1:
		return x
	}
	return &expr{kind: repetition, list: []*expr{x}, min: lo, max: hi}
}

// words matches any of the texts. Common beginnings are shared, so that a list of thousands
// is still one state at a time.
func words(texts []string) *expr {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return wordTree(slices.Compact(texts))
}

func wordTree(sorted []string) *expr {
	if len(sorted) == 0 {
		return never
	}
	first, last := sorted[0], sorted[len(sorted)-1]
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	prefix := lit(first[:n])
	var branches []*expr
	for len(sorted) > 0 {
		if len(sorted[0]) == n {
			branches = append(branches, empty)
			sorted = sorted[1:]
			continue
		}
		size, _ := slices.BinarySearchFunc(sorted, sorted[0][n], func(s string, b byte) int {
			if s[n] > b {
				return 1
			}
			return -1
		})
		group := make([]string, size)
		for i, s := range sorted[:size] {
			group[i] = s[n:]
		}
		if size == 1 {
			branches = append(branches, lit(group[0]))
		} else {
			branches = append(branches, wordTree(group))
		}
		sorted = sorted[size:]
	}
	if n == 0 {
		return alt(branches...)
	}
	return seq(prefix, alt(branches...))
}

// nullable tells whether the empty text matches, given what is known of the rules so far.
func (x *expr) nullable() bool {
	return x.holds(func(y *expr) bool {
		return y.kind == literal && y.text == "" || y.kind == reference && y.rule.nullable || y.kind == finite && y.automaton.states[0].accept
	})
}

// productive tells whether any text matches, given what is known of the rules so far.
func (x *expr) productive() bool {
	return x.holds(func(y *expr) bool {
		return y.kind == literal || y.kind == class && y.class != byteSet{} || y.kind == reference && y.rule.productive || y.kind == finite
	})
}

// holds tells whether a text can be put together of parts that are so.
func (x *expr) holds(so func(*expr) bool) bool {
	part := func(y *expr) bool { return y.holds(so) }
	switch x.kind {
	case sequence:
		return !slices.ContainsFunc(x.list, func(y *expr) bool { return !part(y) })
	case alternation:
		return slices.ContainsFunc(x.list, part)
	case repetition:
		return x.min == 0 || part(x.list[0])
	}
	return so(x)
}

// first calls visit for the rules that may be entered before any byte.
func (x *expr) first(visit func(*rule)) {
	switch x.kind {
	case sequence:
		for _, y := range x.list {
			y.first(visit)
			if !y.nullable() {
				return
			}
		}
	case alternation, repetition:
		for _, y := range x.list {
			y.first(visit)
		}
	case reference:
		visit(x.rule)
	}
}

// refs calls visit for every rule that is named, and returns the number of nodes and bytes.
func (x *expr) refs(visit func(*rule)) int {
	n := 1
	switch x.kind {
	case literal:
		n = len(x.text)
	case finite:
		n = x.automaton.stateCount()
	}
	for _, y := range x.list {
		n += y.refs(visit)
	}
	if x.kind == reference {
		visit(x.rule)
	}
	return n
}

// cost is about the number of states that build makes of the expression.
func (x *expr) cost() int {
	n := 1
	switch x.kind {
	case literal:
		return len(x.text)
	case finite:
		return x.automaton.stateCount()
	case reference:
		if x.rule.inlined {
			return x.rule.cost
		}
	case repetition:
		n = x.list[0].cost()
		if copies := x.copies(n); copies > 0 {
			return n * copies
		}
		return n + 2
	default:
		for _, y := range x.list {
			n += y.cost()
		}
	}
	return n
}

// maxCopied is the cost up to which a repetition is written out; a longer one is counted
// while matching.
const maxCopied = 64

// copies returns how often the body of a repetition is written out, given its cost, or 0
// where it is counted.
func (x *expr) copies(cost int) int {
	n := x.max
	if n == unbounded {
		n = max(x.min, 1)
	}
	if n == 1 || n <= maxCopied && n*cost <= maxCopied {
		return n
	}
	return 0
}

// loops tells whether any repetition in the expression has no bound or is counted, or an automaton may have one.
func (x *expr) loops() bool {
	if x.kind == finite || x.kind == repetition && (x.max == unbounded || x.copies(x.list[0].cost()) == 0) {
		return true
	}
	return slices.ContainsFunc(x.list, (*expr).loops)
}
