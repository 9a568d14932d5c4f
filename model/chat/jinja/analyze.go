package jinja

import "maps"

// A name that a block sets before it reads it is the block's own from the start, in
// the blocks inside it as well: until it is set it is undefined, whatever a variable
// of that name would be around the block. Jinja decides so when it compiles a
// template (jinja2/idtracking.py), and so does this.

// own are such names of a block.
type own []string

// symbols are the names of a block that were seen so far.
type symbols struct {
	outer  *symbols // of the block around
	before *symbols // of the block before this branch of it
	names  map[string]symbol
}

// symbol is what a block does with a name.
type symbol struct {
	stored bool
	hidden bool // own, until it is set
}

func newSymbols(outer *symbols) *symbols { return &symbols{outer: outer, names: map[string]symbol{}} }

func (s *symbols) branch() *symbols {
	return &symbols{outer: s.outer, before: s, names: map[string]symbol{}}
}

// find returns what the block does with the name, if it has seen it.
func (s *symbols) find(name string) (x symbol, seen bool) {
	for ; s != nil && !seen; s = s.before {
		x, seen = s.names[name]
	}
	return x, seen
}

// known tells whether the block or one around it has the name.
func (s *symbols) known(name string) bool {
	for ; s != nil; s = s.outer {
		if _, seen := s.find(name); seen {
			return true
		}
	}
	return false
}

func (s *symbols) load(name string) {
	if !s.known(name) {
		s.names[name] = symbol{}
	}
}

func (s *symbols) store(name string) {
	x, seen := s.find(name)
	s.names[name] = symbol{stored: true, hidden: x.hidden || !seen && !s.outer.known(name)}
}

func (s *symbols) parameter(name string) { s.names[name] = symbol{stored: true} }

func (s *symbols) own() (names own) {
	for name, x := range s.names {
		if x.hidden {
			names = append(names, name)
		}
	}
	return names
}

func (s *symbols) expr(list ...expr) {
	for _, x := range list {
		eachName(x, s.load)
	}
}

func (s *symbols) target(t *target, store func(name string)) {
	switch {
	case t.tuple:
		for _, part := range t.parts {
			s.target(part, store)
		}
	case t.attribute != "":
		s.load(t.name)
	default:
		store(t.name)
	}
}

// block looks at the statements of a block, and then at the blocks in it.
func (s *symbols) block(body []stmt) own {
	s.statements(body)
	s.inside(body)
	return s.own()
}

// statements looks at what belongs to the block itself.
func (s *symbols) statements(body []stmt) {
	for _, x := range body {
		switch x := x.(type) {
		case *printStmt:
			s.expr(x.value)
		case *setStmt:
			s.expr(x.value)
			s.target(x.target, s.store)
		case *captureStmt:
			if x.target != nil {
				s.target(x.target, s.store)
			} else if x.filter != nil {
				s.expr(x.filter)
			}
		case *forStmt:
			s.expr(x.iterable)
		case *ifStmt:
			s.condition(x.branches, x.otherwise)
		case *withStmt:
			s.expr(x.values...)
		case *macroStmt:
			s.store(x.macro.name)
		case *callStmt:
			s.expr(x.call)
		}
	}
}

// condition looks at the branches of an if: what only some of them set is not the
// block's own.
func (s *symbols) condition(branches []branch, otherwise []stmt) {
	s.expr(branches[0].test)
	first, rest, last := s.branch(), s.branch(), s.branch()
	first.statements(branches[0].body)
	for _, b := range branches[1:] {
		rest.condition([]branch{b}, nil)
	}
	last.statements(otherwise)
	var stores []string
	for _, b := range []*symbols{first, rest, last} {
		for name, x := range b.names {
			if known, _ := s.find(name); x.stored && !known.stored {
				stores = append(stores, name)
			}
		}
	}
	for _, b := range []*symbols{first, rest, last} {
		maps.Copy(s.names, b.names)
	}
	for _, name := range stores {
		s.names[name] = symbol{stored: true}
	}
}

// inside looks at the blocks in a block.
func (s *symbols) inside(body []stmt) {
	for _, x := range body {
		switch x := x.(type) {
		case *captureStmt:
			in := newSymbols(s)
			if x.target != nil && x.filter != nil {
				in.expr(x.filter)
			}
			x.own = in.block(x.body)
		case *forStmt:
			in := newSymbols(s)
			in.parameter("loop")
			in.target(x.target, in.parameter)
			x.own = in.block(x.body)
			x.ownElse = newSymbols(s).block(x.otherwise)
		case *ifStmt:
			for _, b := range x.branches {
				s.inside(b.body)
			}
			s.inside(x.otherwise)
		case *withStmt:
			in := newSymbols(s)
			for _, t := range x.targets {
				in.target(t, in.parameter)
			}
			x.own = in.block(x.body)
		case *macroStmt:
			x.macro.analyze(s)
		case *callStmt:
			x.block.analyze(s)
		}
	}
}

func (m *macroNode) analyze(outer *symbols) {
	in := newSymbols(outer)
	for _, p := range m.parameters {
		in.parameter(p)
	}
	for name, used := range map[string]bool{"caller": m.caller, "kwargs": m.kwargs, "varargs": m.varargs} {
		if used {
			in.parameter(name)
		}
	}
	in.expr(m.defaults...)
	m.own = in.block(m.body)
}

// eachName calls f with the names that an expression reads.
func eachName(x expr, f func(name string)) {
	all := func(list ...expr) {
		for _, x := range list {
			if x != nil {
				eachName(x, f)
			}
		}
	}
	args := func(a callArgs) {
		all(a.args...)
		all(a.named...)
		all(a.list, a.mapping)
	}
	switch x := x.(type) {
	case *nameExpr:
		f(x.name)
	case *listExpr:
		all(x.items...)
	case *dictExpr:
		all(x.keys...)
		all(x.values...)
	case *unaryExpr:
		all(x.x)
	case *binaryExpr:
		all(x.a, x.b)
	case *logicExpr:
		all(x.a, x.b)
	case *concatExpr:
		all(x.parts...)
	case *compareExpr:
		all(x.first)
		for _, c := range x.rest {
			all(c.x)
		}
	case *condExpr:
		all(x.test, x.then, x.otherwise)
	case *attrExpr:
		all(x.x)
	case *itemExpr:
		all(x.x, x.index)
	case *sliceExpr:
		all(x.x, x.start, x.stop, x.step)
	case *callExpr:
		all(x.f)
		args(x.args)
	case *filterExpr:
		all(x.x)
		args(x.args)
	case *testExpr:
		all(x.x)
		args(x.args)
	}
}
