package jinja

// block runs statements.
func (r *run) block(body []stmt, s *scope) signal {
	for _, x := range body {
		sig := proceed
		if r.charge(nodeCost) {
			sig = x.exec(r, s)
		}
		if r.err != nil {
			r.err = position(x.at(), r.err)
			return breakLoop
		}
		if sig != proceed {
			return sig
		}
	}
	return proceed
}

func (n *textStmt) exec(r *run, _ *scope) signal {
	r.write(n.text)
	return proceed
}

func (n *printStmt) exec(r *run, s *scope) signal {
	r.write(r.str(r.eval(n.value, s)))
	return proceed
}

func (n *setStmt) exec(r *run, s *scope) signal {
	r.assign(n.target, r.eval(n.value, s), s)
	return proceed
}

const capturedName = "\x00captured"

// exec runs the body in a scope of its own, filters what it prints, and assigns or prints that.
func (n *captureStmt) exec(r *run, outer *scope) signal {
	s := r.enter(outer, n.own)
	sig := proceed
	var v value = r.capture(func() { sig = r.block(n.body, s) })
	switch {
	case sig != proceed:
		return sig
	case n.filter != nil:
		s.setName(capturedName, v)
		v = r.eval(n.filter, s)
	}
	if n.target != nil {
		r.assign(n.target, v, outer)
	} else {
		r.write(r.str(v))
	}
	return proceed
}

func (n *ifStmt) exec(r *run, s *scope) signal {
	for _, b := range n.branches {
		if truth(r.eval(b.test, s)) {
			return r.block(b.body, s)
		}
	}
	return r.block(n.otherwise, s)
}

func (n *withStmt) exec(r *run, s *scope) signal {
	in := r.enter(s, n.own)
	for i, t := range n.targets {
		r.assign(t, r.eval(n.values[i], s), in)
	}
	return r.block(n.body, in)
}

func (n *jumpStmt) exec(*run, *scope) signal { return n.signal }

func (n *macroStmt) exec(r *run, s *scope) signal {
	if r.charge(callCost) {
		s.setName(n.macro.name, n.macro.closure(s))
	}
	return proceed
}

func (n *callStmt) exec(r *run, s *scope) signal {
	f := r.eval(n.call.f, s)
	a := r.args(&n.call.args, s)
	a.names, a.named = append(a.names, "caller"), append(a.named, n.block.closure(s))
	r.write(r.str(r.callValue(f, a)))
	return proceed
}

func (n *forStmt) exec(r *run, s *scope) signal {
	loop := &loopValue{items: r.iterate(r.eval(n.iterable, s)), index0: -1}
	if n.filter != nil {
		loop.keep = func(item value) bool {
			in := &scope{outer: s}
			r.assign(n.target, item, in)
			return truth(r.eval(n.filter, in))
		}
	}
	whole := 0 // passes that came to the end of the body
	for {
		item, ok := loop.next()
		if !ok || !r.charge(itemCost) {
			break
		}
		in := r.enter(s, n.own)
		in.setName("loop", loop)
		r.assign(n.target, item, in)
		sig := r.block(n.body, in)
		if sig == breakLoop {
			break
		}
		if sig == proceed {
			whole++
		}
	}
	// Jinja also runs the else block where every pass was cut short.
	if whole == 0 && r.err == nil {
		return r.block(n.otherwise, r.enter(s, n.ownElse)) // a jump in it is the outer loop's
	}
	return proceed
}

// loopValue is the variable "loop".
type loopValue struct {
	items           []value
	pos             int                   // of the next
	keep            func(item value) bool // the loop's "if", which is asked as late as can be; or nil
	kept            bool                  // it was asked about the next
	index0          int
	before, current value
	changed         *list
}

// peek returns the next element.
func (l *loopValue) peek() (value, bool) {
	for ; l.pos < len(l.items); l.pos++ {
		if l.kept || l.keep == nil || l.keep(l.items[l.pos]) {
			l.kept = true
			return l.items[l.pos], true
		}
	}
	return nil, false
}

// next moves to the next element.
func (l *loopValue) next() (value, bool) {
	v, ok := l.peek()
	l.pos, l.kept = l.pos+1, false
	l.index0++
	l.before, l.current = l.current, v
	return v, ok
}

// length reads on to the end where there is an "if".
func (l *loopValue) length() int {
	if l.keep != nil {
		var rest []value
		for v, ok := l.peek(); ok; v, ok = l.peek() {
			rest = append(rest, v)
			l.pos, l.kept = l.pos+1, false
		}
		l.items, l.pos, l.keep = rest, 0, nil
	}
	return l.index0 + 1 + len(l.items) - l.pos
}

// attr is an attribute of the variable "loop".
func (l *loopValue) attr(r *run, name string) (item value, ok bool) {
	next, more := value(nil), false
	if name == "last" || name == "nextitem" {
		next, more = l.peek()
	}
	switch name {
	case "index":
		return int64(l.index0 + 1), true
	case "index0":
		return int64(l.index0), true
	case "first":
		return l.index0 == 0, true
	case "last":
		return !more, true
	case "length":
		return int64(l.length()), true
	case "revindex":
		return int64(l.length() - l.index0), true
	case "revindex0":
		return int64(l.length() - l.index0 - 1), true
	case "nextitem":
		if !more {
			return &undefined{"there is no next item"}, true
		}
		return next, true
	case "previtem":
		if l.index0 == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.before, true
	case "cycle":
		return &function{"loop.cycle", func(r *run, a *arguments) value {
			if len(a.args) == 0 || len(a.names) > 0 {
				return r.failWith("found %d arguments, want at least one without a name", len(a.args))
			}
			return a.args[l.index0%len(a.args)]
		}}, true
	case "changed":
		return &function{"loop.changed", func(r *run, a *arguments) value {
			now := newTuple(a.args...)
			same := l.changed != nil && r.equal(l.changed, now, 0)
			l.changed = now
			return !same
		}}, true
	}
	return nil, false
}
