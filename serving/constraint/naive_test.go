package constraint

import "slices"

// naive is a second implementation of what expressions mean: it tries every way to read a
// text, byte by byte, without automata, stacks and rewriting.
type naive struct {
	text   string
	viable bool // the text was read to its end and more was wanted
	fuel   int
}

// match calls then with every position up to which x may read from at.
func (n *naive) match(x *expr, at int, then func(at int)) {
	if n.fuel--; n.fuel < 0 {
		return
	}
	switch x.kind {
	case literal:
		for i := range len(x.text) {
			if at == len(n.text) {
				n.viable = true
				return
			}
			if n.text[at] != x.text[i] {
				return
			}
			at++
		}
		then(at)
	case class:
		switch {
		case x.class == byteSet{}:
		case at == len(n.text):
			n.viable = true
		case x.class.has(n.text[at]):
			then(at + 1)
		}
	case sequence:
		n.each(x.list, at, then)
	case alternation:
		for _, y := range x.list {
			if y.productive() {
				n.match(y, at, then)
			}
		}
	case repetition:
		n.times(x, 0, at, then)
	case finite:
		for state := int32(0); ; at++ {
			s := x.automaton.states[state]
			if s.accept {
				then(at)
			}
			if at == len(n.text) {
				n.viable = n.viable || len(s.edges) > 0
				return
			}
			i := slices.IndexFunc(s.edges, func(e span) bool { return e.lo <= n.text[at] && n.text[at] <= e.hi })
			if i < 0 {
				return
			}
			state = s.edges[i].to
		}
	case reference:
		n.match(x.rule.body, at, then)
	}
}

func (n *naive) each(list []*expr, at int, then func(int)) {
	if len(list) == 0 {
		then(at)
		return
	}
	n.match(list[0], at, func(at int) { n.each(list[1:], at, then) })
}

func (n *naive) times(x *expr, done, at int, then func(int)) {
	if done >= x.min {
		then(at)
	}
	if (x.max == unbounded || done < x.max) && x.list[0].productive() {
		n.match(x.list[0], at, func(next int) {
			// A round that reads nothing counts, and leads nowhere new after the least number.
			if next > at || done < x.min {
				n.times(x, done+1, next, then)
			}
		})
	}
}

// judge tells whether a text is in the grammar, whether it may become one by going on, and
// whether the fuel was enough to know.
func judge(g *Grammar, text string) (in, viable, known bool) {
	n := naive{text: text, fuel: 200000}
	n.match(g.root.body, 0, func(at int) {
		if at == len(text) {
			in = true
		}
	})
	return in, n.viable, n.fuel >= 0
}
