package onig

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// ErrSteps is the error of a pattern that takes far more steps than the text is
// long.
var ErrSteps = errors.New("the pattern takes too many steps on this text")

// Bounds on the work. A pattern of a real tokenizer takes less than 30 steps a
// byte.
const (
	freeSteps  = 1 << 20
	stepsAByte = 1 << 8

	// A match that takes so many steps keeps the states that have failed.
	keepAfter = 512
	maxKept   = 64 << 20 // bytes of such states
)

// Regexp is a compiled pattern. It is safe for concurrent use.
type Regexp struct {
	source string
	prog   []inst
	slots  int
	pool   sync.Pool
}

// Compile reads a pattern. The error says what of it is not supported, and where.
func Compile(pattern string) (*Regexp, error) {
	n, err := parsePattern(pattern)
	if err == nil {
		var re *Regexp
		if re, err = assemble(pattern, n); err == nil {
			return re, nil
		}
	}
	const shown = 200
	if len(pattern) > shown {
		pattern = pattern[:shown] + "…"
	}
	return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
}

func assemble(pattern string, n *node) (*Regexp, error) {
	c := compiler{classes: make(map[string]*class)}
	if err := c.compileNode(n, true); err != nil {
		return nil, err
	}
	if c.emit(inst{op: opMatch}); len(c.prog) > maxProgram {
		return nil, errTooLarge
	}
	re := &Regexp{source: pattern, prog: c.prog, slots: c.slots}
	re.pool.New = func() any { return &matcher{re: re, slots: make([]int, re.slots)} }
	return re, nil
}

// String returns the pattern.
func (re *Regexp) String() string { return re.source }

// Each calls yield with the matches of a text, which must be valid UTF-8, leftmost
// first and one after the other. A match of nothing right behind another one is
// left out.
func (re *Regexp) Each(text string, yield func(start, end int) error) error {
	m := re.pool.Get().(*matcher)
	defer func() {
		m.text = ""
		m.forget(0, false)
		re.pool.Put(m)
	}()
	m.text, m.limit = text, len(text)
	m.budget = freeSteps + stepsAByte*len(text)
	m.steps = 0
	last := -1
	for at := 0; at <= len(text); {
		start, end := at, -1
		for ; start <= len(text); start++ {
			if start < len(text) && !utf8.RuneStart(text[start]) {
				continue
			}
			end = m.matchAt(0, start, -1)
			if m.budget < 0 {
				return fmt.Errorf("regular expression %q: %w", re.source, ErrSteps)
			}
			if end >= 0 {
				break
			}
			if m.kept > maxKept/2 {
				m.forget(start, true)
			}
		}
		if end < 0 {
			return nil
		}
		at = end
		if start == end && end == last {
			if at == len(text) {
				return nil
			}
			_, n := utf8.DecodeRuneInString(text[at:])
			at += n
			continue
		}
		last = end
		m.forget(end, true)
		if err := yield(start, end); err != nil {
			return err
		}
	}
	return nil
}

// frame is what to go back to: the second branch of a split, or the old value of a
// slot.
type frame struct {
	pc, at int // pc < 0: slot ^pc had the value at
	second bool
}

type matcher struct {
	re     *Regexp
	text   string
	limit  int // nothing behind it is consumed: the end of the text, or that of a look-behind
	stack  []frame
	slots  []int
	budget int
	steps  int // since the last match

	// By 4,096 places of the text: a bit for every place and instruction that
	// failed.
	failed map[int][]uint64
	kept   int // bytes

	recent   []uint64 // the page of failed used last, which is that of recentAt
	recentAt int
}

const pageBits = 12

// forget drops the failed states before a byte, which are not asked for again.
func (m *matcher) forget(before int, some bool) {
	m.budget -= m.steps
	m.steps = 0
	if m.failed == nil {
		return
	}
	m.recent = nil
	for page, b := range m.failed {
		if !some || page < before>>pageBits {
			m.kept -= len(b) * 8
			delete(m.failed, page)
		}
	}
	if len(m.failed) == 0 {
		m.failed = nil
	}
}

// page returns the states of a place, nil if none are kept.
func (m *matcher) page(at int) []uint64 {
	if m.recent == nil || m.recentAt != at>>pageBits {
		m.recent, m.recentAt = m.failed[at>>pageBits], at>>pageBits
	}
	return m.recent
}

func (m *matcher) hasFailed(pc, at int) bool {
	b := m.page(at)
	if b == nil {
		return false
	}
	bit := (at&(1<<pageBits-1))*len(m.re.prog) + pc
	return b[bit/64]>>(bit%64)&1 != 0
}

func (m *matcher) setFailed(pc, at int) {
	b := m.page(at)
	if b == nil {
		words := (len(m.re.prog)<<pageBits + 63) / 64
		if m.kept+words*8 > maxKept {
			return
		}
		if m.failed == nil {
			m.failed = make(map[int][]uint64)
		}
		b = make([]uint64, words)
		m.failed[at>>pageBits] = b
		m.recent = b
		m.kept += words * 8
	}
	bit := (at&(1<<pageBits-1))*len(m.re.prog) + pc
	b[bit/64] |= 1 << (bit % 64)
}

// matchAt returns the end of the match of the program at pc from a byte on, or -1.
// Where target is not negative, the match must end there.
//
// States inside a look-behind depend on where it must end, and the states of a pattern
// with slots on the slots: they are not kept.
func (m *matcher) matchAt(pc, at, target int) int {
	base := len(m.stack)
	text := m.text[:m.limit]
	prog := m.re.prog
	keepable := m.limit == len(m.text) && len(m.slots) == 0
	for {
		i := &prog[pc]
		ok := true
		switch i.op {
		case opMatch:
			if ok = target < 0 || at == target; ok {
				m.stack = m.stack[:base]
				return at
			}
		case opClass:
			n := 0
			if at < len(text) {
				n = i.class.match(text, at)
			}
			ok = n > 0
			at += n
			pc++
		case opRun:
			end, n := i.run(text, at)
			m.steps += (end - at) / 8
			ok = n >= i.x
			at = end
			pc++
		case opJump:
			pc = i.x
		case opSplit:
			m.steps++
			keep := keepable && m.steps > keepAfter
			if keep && m.hasFailed(pc, at) {
				ok = false
				break
			}
			first := &prog[i.x]
			missed := first.op == opClass && (at == len(text) || first.class.match(text, at) == 0)
			if keep || !missed {
				m.stack = append(m.stack, frame{pc: pc, at: at, second: missed})
			}
			if pc = i.x; missed {
				pc = i.y
			}
		case opAtomic, opLook, opBehind, opAssert:
			at, ok = m.within(i, at)
			pc = i.y
		case opEmpty:
			m.stack = append(m.stack, frame{pc: ^i.x, at: m.slots[i.x]})
			m.slots[i.x] = at
			pc++
		case opIfEmpty:
			pc++
			if m.slots[i.x] == at {
				pc = i.y
			}
		}
		if ok {
			continue
		}
		if pc, at, ok = m.back(base, keepable); !ok {
			return -1
		}
	}
}

// back returns where the last split that has a branch left goes on; false where there is none above base, or no step is left.
func (m *matcher) back(base int, keepable bool) (pc, at int, ok bool) {
	if m.steps++; m.steps > m.budget {
		m.budget = -1
		m.stack = m.stack[:base]
	}
	for len(m.stack) > base {
		f := &m.stack[len(m.stack)-1]
		switch {
		case f.pc < 0:
			m.slots[^f.pc] = f.at
		case !f.second:
			f.second = true
			return m.re.prog[f.pc].y, f.at, true
		case keepable && m.steps > keepAfter:
			m.setFailed(f.pc, f.at)
		}
		m.stack = m.stack[:len(m.stack)-1]
	}
	return 0, 0, false
}

// run returns where as many characters end as opRun takes, and how many they are.
func (i *inst) run(text string, at int) (end, n int) {
	for at < len(text) && n != i.y {
		size := i.class.match(text, at)
		if size == 0 {
			break
		}
		at += size
		n++
	}
	return at, n
}

// within runs an instruction that asserts something or has a program of its own, and returns where the text goes on.
func (m *matcher) within(i *inst, at int) (next int, ok bool) {
	switch i.op {
	case opAssert:
		return at, m.assert(i.place, at)
	case opLook:
		return at, (m.matchAt(i.x, at, -1) >= 0) != i.negated
	case opBehind:
		return at, m.behind(i, at) != i.negated
	}
	end := m.matchAt(i.x, at, -1)
	return end, end >= 0
}

// behind tells whether the program of a look-behind matches up to a byte.
func (m *matcher) behind(i *inst, at int) bool {
	limit := m.limit
	m.limit = at
	defer func() { m.limit = limit }()
	start := at
	for n := 0; ; n++ {
		if n >= i.low && m.matchAt(i.x, start, at) >= 0 {
			return true
		}
		if start == 0 || n == i.high || m.budget < 0 {
			return false
		}
		m.steps++
		_, size := utf8.DecodeLastRuneInString(m.text[:start])
		start -= size
	}
}

func (m *matcher) assert(p place, at int) bool {
	text := m.text
	switch p {
	case lineStart:
		// Not behind the newline that ends the text.
		return at == 0 || text[at-1] == '\n' && at < len(text)
	case lineEnd:
		return at == len(text) || text[at] == '\n'
	case textStart:
		return at == 0
	case textEnd:
		return at == len(text)
	case lastLineEnd:
		return at == len(text) || at == len(text)-1 && text[at] == '\n'
	}
	before, after := false, false
	if at > 0 {
		r, _ := utf8.DecodeLastRuneInString(text[:at])
		before = looseWordSet().has(r)
	}
	if at < len(text) {
		r, _ := utf8.DecodeRuneInString(text[at:])
		after = looseWordSet().has(r)
	}
	return (before != after) == (p == wordBoundary)
}
