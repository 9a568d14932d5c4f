package jinja

// block runs statements.
func (r *run) block(body []stmt, s *scope) (signal, error) {
	for _, x := range body {
		if err := r.charge(nodeCost); err != nil {
			return proceed, position(x.at(), err)
		}
		if sig, err := x.exec(r, s); err != nil || sig != proceed {
			return sig, position(x.at(), err)
		}
	}
	return proceed, nil
}

func (n *textStmt) exec(r *run, _ *scope) (signal, error) { return proceed, r.write(n.text) }

func (n *printStmt) exec(r *run, s *scope) (signal, error) {
	for _, x := range n.values {
		v, err := r.eval(x, s)
		if err != nil {
			return proceed, err
		}
		text, err := r.str(v)
		if err != nil {
			return proceed, err
		}
		if err := r.write(text); err != nil {
			return proceed, err
		}
	}
	return proceed, nil
}

func (n *setStmt) exec(r *run, s *scope) (signal, error) {
	v, err := r.eval(n.value, s)
	if err != nil {
		return proceed, err
	}
	return proceed, r.assign(n.target, v, s)
}

// captureBlock runs a body in a scope of its own and filters what it prints.
func (r *run) captureBlock(body []stmt, filter expr, outer *scope, names own) (v value, sig signal, err error) {
	s, err := r.enter(outer, names)
	if err != nil {
		return nil, proceed, err
	}
	text, err := r.capture(func() (err error) {
		sig, err = r.block(body, s)
		return err
	})
	if err != nil || sig != proceed || filter == nil {
		return text, sig, err
	}
	s.set(capturedName, text)
	v, err = r.eval(filter, s)
	return v, sig, err
}

// capturedName is a variable that no template can spell.
const capturedName = "\x00captured"

func (n *captured) eval(_ *run, s *scope) (value, error) {
	v, _, _ := s.lookup(capturedName)
	return v, nil
}

func (n *setBlockStmt) exec(r *run, s *scope) (signal, error) {
	v, sig, err := r.captureBlock(n.body, n.filter, s, n.own)
	if err != nil || sig != proceed {
		return sig, err
	}
	return proceed, r.assign(n.target, v, s)
}

func (n *filterStmt) exec(r *run, s *scope) (signal, error) {
	v, sig, err := r.captureBlock(n.body, n.filter, s, n.own)
	if err != nil || sig != proceed {
		return sig, err
	}
	text, err := r.str(v)
	if err != nil {
		return proceed, err
	}
	return proceed, r.write(text)
}

func (n *ifStmt) exec(r *run, s *scope) (signal, error) {
	for _, b := range n.branches {
		v, err := r.eval(b.test, s)
		if err != nil {
			return proceed, err
		}
		yes, err := r.truth(v)
		if err != nil {
			return proceed, err
		}
		if yes {
			return r.block(b.body, s)
		}
	}
	return r.block(n.otherwise, s)
}

func (n *withStmt) exec(r *run, s *scope) (signal, error) {
	in, err := r.enter(s, n.own)
	if err != nil {
		return proceed, err
	}
	for i, t := range n.targets {
		v, err := r.eval(n.values[i], s)
		if err != nil {
			return proceed, err
		}
		if err := r.assign(t, v, in); err != nil {
			return proceed, err
		}
	}
	return r.block(n.body, in)
}

func (n *generationStmt) exec(r *run, s *scope) (signal, error) {
	in, err := r.enter(s, n.own)
	if err != nil {
		return proceed, err
	}
	return r.block(n.body, in)
}

func (n *jumpStmt) exec(*run, *scope) (signal, error) { return n.signal, nil }

func (n *macroStmt) exec(r *run, s *scope) (signal, error) {
	if err := r.charge(callCost); err != nil {
		return proceed, err
	}
	s.set(n.macro.name, r.closure(n.macro, s))
	return proceed, nil
}

func (n *callStmt) exec(r *run, s *scope) (signal, error) {
	f, err := r.eval(n.call.f, s)
	if err != nil {
		return proceed, err
	}
	a, err := r.args(&n.call.args, s)
	if err != nil {
		return proceed, err
	}
	a.names, a.named = append(a.names, "caller"), append(a.named, r.closure(n.block, s))
	v, err := r.call(f, a)
	if err != nil {
		return proceed, err
	}
	text, err := r.str(v)
	if err != nil {
		return proceed, err
	}
	return proceed, r.write(text)
}

func (n *forStmt) exec(r *run, s *scope) (signal, error) {
	v, err := r.eval(n.iterable, s)
	if err != nil {
		return proceed, err
	}
	return n.pass(r, s, v, 0)
}

// pass runs the loop over a value; depth counts the recursive loops around it.
func (n *forStmt) pass(r *run, s *scope, over value, depth int) (signal, error) {
	it, err := r.iterate(over)
	if err != nil {
		return proceed, err
	}
	if n.filter != nil {
		it = n.filtered(r, s, it)
	}
	loop := &loopValue{items: it, depth0: depth, index0: -1}
	if n.recursive {
		loop.recurse = func(v value) (string, error) {
			if err := r.deeper("loop"); err != nil {
				return "", err
			}
			defer func() { r.calls-- }()
			return r.capture(func() error {
				_, err := n.pass(r, s, v, depth+1)
				return err
			})
		}
	}
	whole := 0 // passes that came to the end of the body
	for {
		item, ok, err := loop.next(r)
		if err != nil {
			return proceed, err
		}
		if !ok {
			break
		}
		in, err := r.enter(s, n.own)
		if err != nil {
			return proceed, err
		}
		in.set("loop", loop)
		if err := r.assign(n.target, item, in); err != nil {
			return proceed, err
		}
		sig, err := r.block(n.body, in)
		if err != nil {
			return proceed, err
		}
		if sig == breakLoop {
			break
		}
		if sig == proceed {
			whole++
		}
	}
	// Jinja also runs the else block where every pass was cut short.
	if whole == 0 && n.otherwise != nil {
		in, err := r.enter(s, n.ownElse)
		if err != nil {
			return proceed, err
		}
		return r.block(n.otherwise, in) // a jump in it is the outer loop's
	}
	return proceed, nil
}

// filtered is the loop's "if". It runs beside the loop, not in it.
func (n *forStmt) filtered(r *run, s *scope, it *iterator) *iterator {
	return generator(func(r *run) (value, bool, error) {
		for {
			item, ok, err := it.take(r)
			if err != nil || !ok {
				return nil, false, err
			}
			in := s.inner()
			if err := r.assign(n.target, item, in); err != nil {
				return nil, false, err
			}
			v, err := r.eval(n.filter, in)
			if err != nil {
				return nil, false, err
			}
			if yes, err := r.truth(v); err != nil || yes {
				return item, yes, err
			}
		}
	})
}
