package constraint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// A rule is a named expression, which other expressions call. After finish it is not changed.
type rule struct {
	name string
	body *expr
	keep bool // called even where it is small, so that its masks are shared

	// What finish finds out.
	finished             bool
	nullable, productive bool
	inlined              bool
	cost                 int
	inner                bool // the body of a counted repetition
	start                *state
}

// A state of a rule's automaton. Every state can reach the end of its rule.
type state struct {
	id     uint64 // of this process
	rule   *rule
	accept bool // the rule's end, from which nothing goes on
	edges  []edge
	free   []*state // entered without a byte
	calls  []call
	count  *counter
}

type edge struct {
	lo, hi byte
	to     *state
}

// call runs a rule and goes on at back.
type call struct {
	rule *rule
	back *state
}

// counter runs body from min to max times and goes on at exit.
type counter struct {
	body     *rule
	min, max int32
	exit     *state
}

var stateIDs atomic.Uint64

// Bounds of grammars that are read from texts.
const (
	maxRules  = 1 << 15
	maxNodes  = 1 << 18
	maxInline = 48 // cost of a rule that is built into its callers
)

var (
	errTooLarge = errors.New("the grammar is too large")
	errNoText   = errors.New("admits no text that ends")
)

// finish checks the rules that root reaches and builds their automata. Rules that are
// finished already are left alone. A rule that may enter itself before a byte is refused.
// The bounds hold for grammars that are read from texts.
func finish(root *rule, bounded bool) error {
	var rules []*rule // callees first
	var open *rule
	visited := make(map[*rule]bool)
	nodes := 0
	var collect func(r *rule)
	collect = func(r *rule) {
		if r.finished || visited[r] {
			return
		}
		visited[r] = true
		if r.body == nil { // of a schema that is still being read
			open = r
			return
		}
		nodes += r.body.refs(collect)
		rules = append(rules, r)
	}
	collect(root)
	if open != nil {
		return fmt.Errorf("%s refers to itself", open.name)
	}
	if bounded && (len(rules) > maxRules || nodes > maxNodes) {
		return fmt.Errorf("%w: %d rules with %d nodes, want up to %d and %d", errTooLarge, len(rules), nodes, maxRules, maxNodes)
	}
	for changed := true; changed; {
		changed = false
		for _, r := range rules {
			if !r.nullable && r.body.nullable() {
				r.nullable, changed = true, true
			}
			if !r.productive && r.body.productive() {
				r.productive, changed = true, true
			}
		}
	}
	if !root.productive {
		return fmt.Errorf("%s %w", root.name, errNoText)
	}
	if chain := leftRecursion(rules); chain != nil {
		return fmt.Errorf("rule %s is left-recursive: it begins with itself (%s)", chain[0], strings.Join(chain, " → "))
	}
	recursive := make(map[*rule]bool) // at least one of each circle
	cycles(rules, func(body *expr, visit func(*rule)) { body.refs(visit) }, func(_ []*rule, r *rule) { recursive[r] = true })
	for _, r := range rules {
		r.cost = r.body.cost()
		r.inlined = !r.keep && !recursive[r] && r.cost <= maxInline && !r.body.loops()
	}
	for _, r := range rules {
		if r.productive && (!r.inlined || r == root) {
			r.build()
		}
		r.finished = true
	}
	return nil
}

// leftRecursion returns the names along a cycle of rules that enter each other before a
// byte, or nil.
func leftRecursion(rules []*rule) (names []string) {
	cycles(rules, (*expr).first, func(path []*rule, r *rule) {
		if names != nil {
			return
		}
		for _, on := range path[slices.Index(path, r):] {
			names = append(names, on.name)
		}
		names = append(names, r.name)
	})
	return names
}

// cycles calls found for rules that lead to each other in a circle, at least once for each circle, with the
// way to the one that is come to again.
func cycles(rules []*rule, next func(body *expr, visit func(*rule)), found func(path []*rule, r *rule)) {
	const open, closed = 1, 2
	mark := make(map[*rule]int)
	var path []*rule
	var visit func(r *rule)
	visit = func(r *rule) {
		switch {
		case r.finished || mark[r] == closed:
			return
		case mark[r] == open:
			found(path, r)
			return
		}
		mark[r] = open
		path = append(path, r)
		next(r.body, visit)
		path = path[:len(path)-1]
		mark[r] = closed
	}
	for _, r := range rules {
		visit(r)
	}
}

func (r *rule) newState() *state { return &state{id: stateIDs.Add(1), rule: r} }

func (r *rule) build() {
	r.start = r.newState()
	end := r.newState()
	end.accept = true
	r.addPaths(r.body, r.start, end)
}

// addPaths makes the paths from one state to another that read what x matches, which is some
// text. Nothing leads back to from, so that alternatives may share it.
func (r *rule) addPaths(x *expr, from, to *state) {
	switch x.kind {
	case literal:
		if x.text == "" {
			from.free = append(from.free, to)
			return
		}
		for i := range len(x.text) - 1 {
			next := r.newState()
			from.edges = append(from.edges, edge{x.text[i], x.text[i], next})
			from = next
		}
		b := x.text[len(x.text)-1]
		from.edges = append(from.edges, edge{b, b, to})
	case class:
		x.class.ranges(func(lo, hi byte) { from.edges = append(from.edges, edge{lo, hi, to}) })
	case sequence:
		for _, y := range x.list[:len(x.list)-1] {
			next := r.newState()
			r.addPaths(y, from, next)
			from = next
		}
		r.addPaths(x.list[len(x.list)-1], from, to)
	case alternation:
		for _, y := range x.list {
			if y.productive() {
				r.addPaths(y, from, to)
			}
		}
	case repetition:
		r.repeat(x, from, to)
	case finite:
		x.automaton.addStates(r, from, to)
	case reference:
		if x.rule.inlined {
			r.addPaths(x.rule.body, from, to)
			return
		}
		from.calls = append(from.calls, call{x.rule, to})
		if x.rule.nullable {
			from.free = append(from.free, to)
		}
	}
}

func (r *rule) repeat(x *expr, from, to *state) {
	body, least := x.list[0], x.min
	if !body.productive() { // and least is 0
		from.free = append(from.free, to)
		return
	}
	if body.nullable() {
		least = 0
	}
	if x.copies(body.cost()) == 0 && (x.max != unbounded || least > 0) {
		inner := &rule{name: r.name, body: body, inner: true, finished: true, productive: true, nullable: body.nullable()}
		inner.build()
		counted := r.newState()
		counted.count = &counter{inner, int32(least), int32(x.max), to}
		from.free = append(from.free, counted)
		return
	}
	copied := least
	if x.max == unbounded {
		copied = max(least-1, 0) // the loop is one more
	}
	for range copied {
		next := r.newState()
		r.addPaths(body, from, next)
		from = next
	}
	if x.max == unbounded {
		loop, back := r.newState(), r.newState()
		from.free = append(from.free, loop)
		r.addPaths(body, loop, back)
		back.free = append(back.free, loop, to)
		if least == 0 {
			from.free = append(from.free, to)
		}
		return
	}
	for range x.max - least {
		from.free = append(from.free, to)
		next := r.newState()
		r.addPaths(body, from, next)
		from = next
	}
	from.free = append(from.free, to)
}
