package jinja

import (
	"slices"
	"strings"
)

// arguments of a call: in order, and by name.
type arguments struct {
	args  []value
	names []string
	named []value
}

// missing is an argument that was not given.
type missing struct{}

// args evaluates the arguments of a call.
func (r *run) args(c *callArgs, s *scope) *arguments {
	a := &arguments{args: r.evalAll(c.args, s)}
	for i, v := range r.evalAll(c.named, s) {
		a.addNamed(r, c.names[i], v)
	}
	if c.list != nil {
		if items := r.iterate(r.eval(c.list, s)); r.chargeItems(len(items)) {
			a.args = append(a.args, items...)
		}
	}
	if c.mapping == nil {
		return a
	}
	v := r.eval(c.mapping, s)
	d, ok := v.(*dict)
	if !ok {
		r.failWith("found ** before a value of type %s, want a dict", typeName(v))
		return a
	}
	for i, key := range d.keys {
		name, ok := text(key)
		if !ok {
			r.failWith("found ** before a dict with a key of type %s, want strings", typeName(key))
		}
		if !r.chargeItems(1) {
			break
		}
		a.addNamed(r, name, d.vals[i])
	}
	return a
}

func (a *arguments) addNamed(r *run, name string, v value) {
	if slices.Contains(a.names, name) {
		r.failWith("found the argument %s twice", quoted(name))
	}
	if r.charge(len(a.names)) {
		a.names, a.named = append(a.names, name), append(a.named, v)
	}
}

// takeNamed removes an argument that was given by name.
func (a *arguments) takeNamed(name string) (value, bool) {
	i := slices.Index(a.names, name)
	if i < 0 {
		return nil, false
	}
	v := a.named[i]
	a.names, a.named = slices.Delete(slices.Clone(a.names), i, i+1), slices.Delete(slices.Clone(a.named), i, i+1)
	return v, true
}

// bindParameters sorts arguments by parameters; those whose name ends in "?" may be missing{}.
func (a *arguments) bindParameters(r *run, parameters ...string) []value {
	if len(a.args) > len(parameters) {
		r.failWith("found %d arguments, want at most %d", len(a.args), len(parameters))
	}
	out := make([]value, len(parameters))
	names := make([]string, len(parameters))
	for i, p := range parameters {
		name, optional := strings.CutSuffix(p, "?")
		names[i], out[i] = name, missing{}
		j := slices.Index(a.names, name)
		switch {
		case i < len(a.args) && j >= 0:
			r.failWith("found the argument %s twice", name)
		case i < len(a.args):
			out[i] = a.args[i]
		case j >= 0:
			out[i] = a.named[j]
		case !optional:
			r.failWith("the argument %s is missing", name)
		}
	}
	for _, n := range a.names {
		if !slices.Contains(names, n) {
			r.failWith("found the argument %s, want %s", quoted(n), strings.Join(names, ", "))
		}
	}
	return out
}

// given tells whether an optional argument was.
func given(v value) bool { return v != value(missing{}) }

// isSet tells whether an optional argument was given and is not None.
func isSet(v value) bool { return given(v) && v != nil }

// flag reads an optional argument that is true or false.
func flag(v value) bool { return given(v) && truth(v) }

// intArg reads an argument that is an integer.
func (r *run) intArg(v value, otherwise int) int {
	i, ok := asInt(v)
	if u, isUndefined := v.(*undefined); isUndefined {
		u.failUse(r)
	}
	if given(v) && !ok {
		r.failWith("found an argument of type %s, want an integer", typeName(v))
	}
	if !ok {
		return otherwise
	}
	return int(i)
}

// stringArg reads an argument that is a string.
func (r *run) stringArg(v value) string {
	s, ok := text(v)
	if !ok {
		r.failWith("found an argument of type %s, want a string", typeName(v))
	}
	return s
}

func (r *run) callValue(f value, a *arguments) value {
	switch f := f.(type) {
	case *function:
		if !r.charge(callCost) {
			return nil
		}
		v := f.call(r, a)
		r.err = namedError(f.name, r.err)
		return v
	case *undefined:
		return f.failUse(r)
	case *loopValue:
		return r.failWith("found a call of loop: recursive loops are not supported")
	}
	return r.failWith("found a call of a value of type %s, want a function", typeName(f))
}

// closure is a macro that sees the variables of s.
func (m *macroNode) closure(s *scope) *function {
	return &function{"macro " + quoted(m.name), func(r *run, a *arguments) value { return m.call(r, a, s) }}
}

func (m *macroNode) call(r *run, a *arguments, outer *scope) value {
	if r.calls >= maxCalls {
		return r.failWith("calls nested more than %d deep", maxCalls)
	}
	r.calls++
	defer func() { r.calls-- }()
	s := r.enter(outer, m.own)
	if !r.charge(product(len(m.parameters), itemCost+len(m.parameters)+len(a.names))) {
		return nil
	}
	rest := &arguments{a.args, a.names, a.named}
	var absent []int
	for i, name := range m.parameters {
		v, ok := value(nil), i < len(a.args)
		if ok {
			v = a.args[i]
		} else if v, ok = rest.takeNamed(name); !ok {
			absent = append(absent, i)
		}
		s.setName(name, v)
	}
	if m.caller {
		v, _ := rest.takeNamed("caller")
		if v == nil {
			v = &undefined{"No caller defined"}
		}
		s.setName("caller", v)
	}
	m.surplus(r, rest, s)
	for _, i := range absent {
		name := m.parameters[i]
		if d := i - (len(m.parameters) - len(m.defaults)); d >= 0 {
			s.setName(name, r.eval(m.defaults[d], s))
		} else {
			s.setName(name, &undefined{"parameter '" + name + "' was not provided"})
		}
	}
	return r.capture(func() { r.block(m.body, s) })
}

// surplus deals with arguments that no parameter takes.
func (m *macroNode) surplus(r *run, a *arguments, s *scope) {
	if m.kwargs {
		d := newDict(len(a.names))
		for i, name := range a.names {
			d.setItem(r, name, a.named[i])
		}
		s.setName("kwargs", d)
	} else if len(a.names) > 0 {
		r.failWith("found the argument %s, want %s", quoted(a.names[0]), strings.Join(m.parameters, ", "))
	}
	more := a.args[min(len(a.args), len(m.parameters)):]
	if m.varargs {
		s.setName("varargs", newTuple(more...))
	} else if len(more) > 0 {
		r.failWith("found %d arguments, want at most %d", len(a.args), len(m.parameters))
	}
}
