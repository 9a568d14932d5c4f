package jinja

import "fmt"

// eval evaluates an expression.
func (r *run) eval(x expr, s *scope) (v value) {
	if r.charge(nodeCost) {
		v = x.eval(r, s)
	}
	if r.err != nil {
		r.err = position(x.at(), r.err)
		return nil
	}
	return v
}

// evalAll evaluates expressions in order; nil ones have no value.
func (r *run) evalAll(list []expr, s *scope) []value {
	if !r.chargeItems(1 + len(list)) {
		return nil
	}
	values := make([]value, len(list))
	for i, x := range list {
		if x != nil {
			values[i] = r.eval(x, s)
		}
	}
	return values
}

func (n *constExpr) eval(*run, *scope) value { return n.value }

func (n *nameExpr) eval(r *run, s *scope) value {
	v, ok, read := s.lookup(n.name)
	r.charge(read)
	if !ok {
		return &undefined{"'" + n.name + "' is undefined"}
	}
	return v
}

func (n *listExpr) eval(r *run, s *scope) value { return &list{n.kind, r.evalAll(n.items, s)} }

func (n *dictExpr) eval(r *run, s *scope) value {
	d := newDict(len(n.keys))
	for i, x := range n.keys {
		key := r.eval(x, s)
		d.setItem(r, key, r.eval(n.values[i], s))
	}
	r.charge(callCost)
	return d
}

func (n *unaryExpr) eval(r *run, s *scope) value {
	v := r.eval(n.x, s)
	if n.op == "not" {
		return !truth(v)
	}
	return r.sign(n.op, v)
}

func (n *binaryExpr) eval(r *run, s *scope) value {
	a := r.eval(n.a, s)
	return r.binary(n.op, a, r.eval(n.b, s))
}

func (n *logicExpr) eval(r *run, s *scope) value {
	if v := r.eval(n.a, s); truth(v) == n.or {
		return v
	}
	return r.eval(n.b, s)
}

func (n *concatExpr) eval(r *run, s *scope) value {
	return r.joined(r.evalAll(n.parts, s), "")
}

func (n *condExpr) eval(r *run, s *scope) value {
	switch {
	case truth(r.eval(n.test, s)):
		return r.eval(n.then, s)
	case n.otherwise != nil:
		return r.eval(n.otherwise, s)
	}
	return &undefined{fmt.Sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", n.line)}
}

func (n *compareExpr) eval(r *run, s *scope) value {
	a := r.eval(n.first, s)
	for _, c := range n.rest {
		b := r.eval(c.x, s)
		if !r.compare(c.op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (n *attrExpr) eval(r *run, s *scope) value { return r.getAttr(r.eval(n.x, s), n.name) }

func (n *itemExpr) eval(r *run, s *scope) value {
	v := r.eval(n.x, s)
	return r.getItem(v, r.eval(n.index, s))
}

func (n *sliceExpr) eval(r *run, s *scope) value {
	v := r.eval(n.x, s)
	return r.slice(v, r.evalAll([]expr{n.start, n.stop, n.step}, s))
}

func (n *callExpr) eval(r *run, s *scope) value {
	f := r.eval(n.f, s)
	return r.callValue(f, r.args(&n.args, s))
}

func (n *filterExpr) eval(r *run, s *scope) value {
	v := r.eval(n.x, s)
	return r.filter(n.name, v, r.args(&n.args, s))
}

func (n *testExpr) eval(r *run, s *scope) value {
	v := r.eval(n.x, s)
	return r.test(n.name, v, r.args(&n.args, s))
}

// captured is a variable that no template can spell.
func (n *captured) eval(_ *run, s *scope) value {
	v, _, _ := s.lookup(capturedName)
	return v
}
