package jinja

import "fmt"

// eval evaluates an expression.
func (r *run) eval(x expr, s *scope) (value, error) {
	if err := r.charge(nodeCost); err != nil {
		return nil, position(x.at(), err)
	}
	v, err := x.eval(r, s)
	if err != nil {
		return nil, position(x.at(), err)
	}
	return v, nil
}

// evalTruth evaluates a condition.
func (r *run) evalTruth(x expr, s *scope) (value, bool, error) {
	v, err := r.eval(x, s)
	if err != nil {
		return nil, false, err
	}
	yes, err := r.truth(v)
	return v, yes, err
}

func (n *constExpr) eval(*run, *scope) (value, error) { return n.value, nil }

func (n *nameExpr) eval(r *run, s *scope) (value, error) {
	v, ok, read := s.lookup(n.name)
	if err := r.charge(read); err != nil || ok {
		return v, err
	}
	return &undefined{"'" + n.name + "' is undefined"}, nil
}

func (n *listExpr) eval(r *run, s *scope) (value, error) {
	if err := r.chargeItems(1 + len(n.items)); err != nil {
		return nil, err
	}
	items := make([]value, len(n.items))
	for i, x := range n.items {
		v, err := r.eval(x, s)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return &list{items: items, tuple: n.tuple}, nil
}

func (n *dictExpr) eval(r *run, s *scope) (value, error) {
	if err := r.charge(callCost); err != nil {
		return nil, err
	}
	d := newDict(len(n.keys))
	for i, x := range n.keys {
		key, err := r.eval(x, s)
		if err != nil {
			return nil, err
		}
		v, err := r.eval(n.values[i], s)
		if err != nil {
			return nil, err
		}
		if err := d.set(r, key, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (n *unaryExpr) eval(r *run, s *scope) (value, error) {
	if n.op == "not" {
		_, yes, err := r.evalTruth(n.x, s)
		return !yes, err
	}
	v, err := r.eval(n.x, s)
	if err != nil {
		return nil, err
	}
	return sign(n.op, v)
}

func (n *binaryExpr) eval(r *run, s *scope) (value, error) {
	a, err := r.eval(n.a, s)
	if err != nil {
		return nil, err
	}
	b, err := r.eval(n.b, s)
	if err != nil {
		return nil, err
	}
	return r.binary(n.op, a, b)
}

func (n *logicExpr) eval(r *run, s *scope) (value, error) {
	v, yes, err := r.evalTruth(n.a, s)
	if err != nil || yes == n.or {
		return v, err
	}
	return r.eval(n.b, s)
}

func (n *concatExpr) eval(r *run, s *scope) (value, error) {
	parts := make([]string, len(n.parts))
	for i, x := range n.parts {
		v, err := r.eval(x, s)
		if err != nil {
			return nil, err
		}
		if parts[i], err = r.str(v); err != nil {
			return nil, err
		}
	}
	return r.joined(parts, "")
}

func (n *condExpr) eval(r *run, s *scope) (value, error) {
	_, yes, err := r.evalTruth(n.test, s)
	switch {
	case err != nil:
		return nil, err
	case yes:
		return r.eval(n.then, s)
	case n.otherwise != nil:
		return r.eval(n.otherwise, s)
	}
	return &undefined{fmt.Sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", n.line)}, nil
}

func (n *compareExpr) eval(r *run, s *scope) (value, error) {
	a, err := r.eval(n.first, s)
	if err != nil {
		return nil, err
	}
	for _, c := range n.rest {
		b, err := r.eval(c.x, s)
		if err != nil {
			return nil, err
		}
		yes, err := r.compare(c.op, a, b)
		if err != nil || !yes {
			return false, err
		}
		a = b
	}
	return true, nil
}

func (n *attrExpr) eval(r *run, s *scope) (value, error) {
	v, err := r.eval(n.x, s)
	if err != nil {
		return nil, err
	}
	return r.getAttr(v, n.name)
}

func (n *itemExpr) eval(r *run, s *scope) (value, error) {
	v, err := r.eval(n.x, s)
	if err != nil {
		return nil, err
	}
	index, err := r.eval(n.index, s)
	if err != nil {
		return nil, err
	}
	return r.getItem(v, index)
}

func (n *sliceExpr) eval(r *run, s *scope) (value, error) {
	v, err := r.eval(n.x, s)
	if err != nil {
		return nil, err
	}
	var bounds [3]value
	for i, x := range []expr{n.start, n.stop, n.step} {
		if x == nil {
			continue
		}
		if bounds[i], err = r.eval(x, s); err != nil {
			return nil, err
		}
	}
	return r.slice(v, bounds)
}

func (n *callExpr) eval(r *run, s *scope) (value, error) {
	f, err := r.eval(n.f, s)
	if err != nil {
		return nil, err
	}
	a, err := r.args(&n.args, s)
	if err != nil {
		return nil, err
	}
	return r.call(f, a)
}

func (n *filterExpr) eval(r *run, s *scope) (value, error) {
	v, err := r.eval(n.x, s)
	if err != nil {
		return nil, err
	}
	a, err := r.args(&n.args, s)
	if err != nil {
		return nil, err
	}
	return r.filter(n.name, v, a)
}

func (n *testExpr) eval(r *run, s *scope) (value, error) {
	v, err := r.eval(n.x, s)
	if err != nil {
		return nil, err
	}
	a, err := r.args(&n.args, s)
	if err != nil {
		return nil, err
	}
	return r.test(n.name, v, a)
}

func (r *run) filter(name string, v value, a *arguments) (value, error) {
	f := filters[name]
	if f == nil {
		return nil, errNoSuch("filter", name)
	}
	out, err := f(r, v, a)
	if err != nil {
		return nil, within("filter "+name, err)
	}
	return out, nil
}

func (r *run) test(name string, v value, a *arguments) (bool, error) {
	f := tests[name]
	if f == nil {
		return false, errNoSuch("test", name)
	}
	yes, err := f(r, v, a)
	if err != nil {
		return false, within("test "+name, err)
	}
	return yes, nil
}
