package onig

import (
	"errors"
	"fmt"
	"slices"
)

// maxProgram bounds the instructions of a pattern; repetitions with numbers are
// written out.
const maxProgram = 50_000

type op uint8

const (
	opMatch   op = iota
	opClass      // a character of class
	opRun        // x to y characters of class (y < 0: any number), as many as there are, and never fewer
	opSplit      // try x, unless it begins with a character that is not there, then y
	opJump       // to x
	opAtomic     // the program at x, then on at y
	opLook       // where the program at x matches (negated: does not), on at y
	opBehind     // where the program at x matches up to here, on at y; it takes low to high characters
	opAssert     // where place holds, on at y
	opEmpty      // remember the place in slot x
	opIfEmpty    // to y if the place is that in slot x
)

type inst struct {
	op        op
	negated   bool
	place     place
	x, y      int
	low, high int // high < 0: any number
	class     *class
}

type compiler struct {
	prog    []inst
	slots   int
	classes map[string]*class
}

var errTooLarge = fmt.Errorf("more than %d instructions, once its repetitions are written out", maxProgram)

func (c *compiler) emit(i inst) int {
	c.prog = append(c.prog, i)
	return len(c.prog) - 1
}

func (c *compiler) newClass(s runeSet) *class {
	key := fmt.Sprint(s)
	if known, ok := c.classes[key]; ok {
		return known
	}
	made := newClass(s)
	c.classes[key] = made
	return made
}

// compileNode appends the program of n. final tells that what follows cannot fail.
func (c *compiler) compileNode(n *node, final bool) error {
	if len(c.prog) > maxProgram {
		return errTooLarge
	}
	switch n.kind {
	case kindSet:
		c.emit(inst{op: opClass, class: c.newClass(n.set)})
	case kindCat:
		for i, sub := range n.subs {
			last := final
			for _, later := range n.subs[i+1:] {
				last = last && cannotFail(later)
			}
			if err := c.compileNode(sub, last); err != nil {
				return err
			}
		}
	case kindAlt:
		return c.alternatives(n, final)
	case kindRepeat:
		return c.repeat(n, final)
	case kindAtomic:
		if run := n.subs[0]; run.kind == kindRepeat && !run.lazy && run.subs[0].kind == kindSet {
			return c.repeat(run, true)
		}
		return c.body(inst{op: opAtomic}, n.subs[0])
	case kindLook:
		return c.body(inst{op: opLook, negated: n.negated}, n.subs[0])
	case kindBehind:
		low, high := width(n.subs[0])
		return c.body(inst{op: opBehind, negated: n.negated, low: low, high: high}, n.subs[0])
	case kindAssert:
		c.emit(inst{op: opAssert, place: n.place, y: len(c.prog) + 1})
	}
	return nil
}

// body emits an instruction with a program of its own behind it.
func (c *compiler) body(i inst, sub *node) error {
	at := c.emit(i)
	c.prog[at].x = len(c.prog)
	if err := c.compileNode(sub, i.op != opBehind); err != nil {
		return err
	}
	c.emit(inst{op: opMatch})
	c.prog[at].y = len(c.prog)
	return nil
}

func (c *compiler) alternatives(n *node, final bool) error {
	var ends []int
	for i, sub := range n.subs {
		split := -1
		if i < len(n.subs)-1 {
			split = c.emit(inst{op: opSplit})
			c.prog[split].x = len(c.prog)
		}
		if err := c.compileNode(sub, final); err != nil {
			return err
		}
		if split >= 0 {
			ends = append(ends, c.emit(inst{op: opJump}))
			c.prog[split].y = len(c.prog)
		}
	}
	for _, at := range ends {
		c.prog[at].x = len(c.prog)
	}
	return nil
}

var errEmptyRepeat = errors.New("a number of repetitions of what can match nothing is not supported")

func (c *compiler) repeat(n *node, final bool) error {
	sub := n.subs[0]
	if (n.min > 1 || n.max > 1) && canBeEmpty(sub) {
		return errEmptyRepeat // Oniguruma stops after one that is empty, or not, by the size of it
	}
	if sub.kind == kindSet && !n.lazy && final {
		c.emit(inst{op: opRun, x: n.min, y: n.max, class: c.newClass(sub.set)})
		return nil
	}
	for range n.min {
		if err := c.compileNode(sub, false); err != nil {
			return err
		}
	}
	if n.max >= 0 {
		return c.optional(n, final)
	}
	// again: split to the body or past it; the body; back.
	again := c.emit(inst{op: opSplit})
	body := len(c.prog)
	slot := -1
	if canBeEmpty(sub) {
		slot = c.slots
		c.slots++
		c.emit(inst{op: opEmpty, x: slot})
	}
	if err := c.compileNode(sub, final); err != nil {
		return err
	}
	if slot >= 0 {
		c.emit(inst{op: opIfEmpty, x: slot, y: len(c.prog) + 2}) // past the jump
	}
	c.emit(inst{op: opJump, x: again})
	c.setSplit(again, body, len(c.prog), n.lazy)
	return nil
}

// optional compiles what of a repetition with a maximum may be missing.
func (c *compiler) optional(n *node, final bool) error {
	var splits []int
	for i := n.min; i < n.max; i++ {
		splits = append(splits, c.emit(inst{op: opSplit}))
		if err := c.compileNode(n.subs[0], final); err != nil {
			return err
		}
	}
	for _, at := range splits {
		c.setSplit(at, at+1, len(c.prog), n.lazy)
	}
	return nil
}

func (c *compiler) setSplit(at, body, past int, lazy bool) {
	if lazy {
		body, past = past, body
	}
	c.prog[at].x, c.prog[at].y = body, past
}

// cannotFail tells whether n matches everywhere.
func cannotFail(n *node) bool {
	switch n.kind {
	case kindEmpty:
		return true
	case kindRepeat:
		return n.min == 0 || cannotFail(n.subs[0])
	case kindAtomic:
		return cannotFail(n.subs[0])
	case kindCat:
		return !slices.ContainsFunc(n.subs, func(sub *node) bool { return !cannotFail(sub) })
	case kindAlt:
		return slices.ContainsFunc(n.subs, cannotFail)
	}
	return false
}

func canBeEmpty(n *node) bool {
	low, _ := width(n)
	return low == 0
}

// maxWidth bounds the widths that are computed.
const maxWidth = 1 << 20

// width returns the least and the most characters that n takes; high < 0 is any
// number.
func width(n *node) (low, high int) {
	add := func(a, b int) int {
		if a < 0 || b < 0 || a+b > maxWidth {
			return -1
		}
		return a + b
	}
	switch n.kind {
	case kindSet:
		return 1, 1
	case kindAtomic:
		return width(n.subs[0])
	case kindCat:
		for _, sub := range n.subs {
			l, h := width(sub)
			low, high = min(low+l, maxWidth), add(high, h)
		}
	case kindAlt:
		for i, sub := range n.subs {
			l, h := width(sub)
			if i == 0 {
				low, high = l, h
				continue
			}
			if low = min(low, l); high >= 0 && h >= 0 { // any number wins, wherever it stands
				high = max(high, h)
			} else {
				high = -1
			}
		}
	case kindRepeat:
		l, h := width(n.subs[0])
		low = min(l*n.min, maxWidth)
		switch {
		case h == 0:
		case n.max < 0 || h < 0 && n.max != 0 || h*n.max > maxWidth:
			high = -1
		default:
			high = h * n.max
		}
	}
	return low, high
}
