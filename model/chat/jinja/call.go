package jinja

import (
	"fmt"
	"math/big"
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
func (r *run) args(c *callArgs, s *scope) (*arguments, error) {
	a := &arguments{}
	if err := r.chargeItems(1 + len(c.args) + len(c.named)); err != nil {
		return nil, err
	}
	for _, x := range c.args {
		v, err := r.eval(x, s)
		if err != nil {
			return nil, err
		}
		a.args = append(a.args, v)
	}
	for i, x := range c.named {
		v, err := r.eval(x, s)
		if err != nil {
			return nil, err
		}
		if err := a.add(r, c.names[i], v); err != nil {
			return nil, err
		}
	}
	if c.list != nil {
		v, err := r.eval(c.list, s)
		if err != nil {
			return nil, err
		}
		items, err := r.collect(v)
		if err != nil {
			return nil, err
		}
		if err := r.chargeItems(len(items)); err != nil {
			return nil, err
		}
		a.args = append(a.args, items...)
	}
	if c.mapping == nil {
		return a, nil
	}
	v, err := r.eval(c.mapping, s)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("found ** before a value of type %s, want a dict", typeName(v))
	}
	for i, key := range d.keys {
		name, ok := text(key)
		if !ok {
			return nil, fmt.Errorf("found ** before a dict with a key of type %s, want strings", typeName(key))
		}
		if err := r.chargeItems(1); err != nil {
			return nil, err
		}
		if err := a.add(r, name, d.vals[i]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *arguments) add(r *run, name string, v value) error {
	if err := r.charge(len(a.names)); err != nil {
		return err
	}
	for _, n := range a.names {
		if n == name {
			return fmt.Errorf("found the argument %s twice", quoted(name))
		}
	}
	a.names, a.named = append(a.names, name), append(a.named, v)
	return nil
}

// bind sorts arguments by parameters; those whose name ends in "?" may be missing{}.
func (a *arguments) bind(what string, parameters ...string) ([]value, error) {
	if len(a.args) > len(parameters) {
		return nil, fmt.Errorf("%s: found %d arguments, want at most %d", what, len(a.args), len(parameters))
	}
	out := make([]value, len(parameters))
	used := 0
	for i, p := range parameters {
		name, optional := strings.CutSuffix(p, "?")
		out[i] = missing{}
		if i < len(a.args) {
			out[i] = a.args[i]
		}
		for j, n := range a.names {
			if n != name {
				continue
			}
			if i < len(a.args) {
				return nil, fmt.Errorf("%s: found the argument %s twice", what, name)
			}
			out[i] = a.named[j]
			used++
		}
		if out[i] == (missing{}) && !optional {
			return nil, fmt.Errorf("%s: the argument %s is missing", what, name)
		}
	}
	if used < len(a.names) {
		for _, n := range a.names {
			if !contains(parameters, n) {
				return nil, fmt.Errorf("%s: found the argument %s, want %s", what, quoted(n), strings.Join(parameters, ", "))
			}
		}
	}
	return out, nil
}

func contains(parameters []string, name string) bool {
	for _, p := range parameters {
		if strings.TrimSuffix(p, "?") == name {
			return true
		}
	}
	return false
}

// given tells whether an optional argument was.
func given(v value) bool { return v != value(missing{}) }

// set tells whether an optional argument was given and is not None.
func set(v value) bool { return given(v) && v != nil }

// intArg reads an argument that is an integer.
func intArg(what string, v value, otherwise int) (int, error) {
	if !given(v) {
		return otherwise, nil
	}
	if _, large := v.(*big.Int); large {
		return 0, fmt.Errorf("%s: found an integer of more than 64 bits", what)
	}
	if i, ok := asInt(v); ok {
		return i, nil
	}
	if u, ok := v.(*undefined); ok {
		return 0, u.fail()
	}
	return 0, fmt.Errorf("%s: found an argument of type %s, want an integer", what, typeName(v))
}

// stringArg reads an argument that is a string.
func stringArg(what string, v value) (string, error) {
	s, ok := text(v)
	if !ok {
		return "", fmt.Errorf("%s: found an argument of type %s, want a string", what, typeName(v))
	}
	return s, nil
}

// call is f(…).
func (r *run) call(f value, a *arguments) (value, error) {
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case *loopValue:
		if f.recurse == nil {
			return nil, fmt.Errorf("loop: found a call, want the loop to be marked as recursive")
		}
		args, err := a.bind("loop", "iterable")
		if err != nil {
			return nil, err
		}
		return f.recurse(args[0])
	case *joiner:
		if _, err := a.bind("joiner"); err != nil {
			return nil, err
		}
		if !f.used {
			f.used = true
			return "", nil
		}
		return f.separator, nil
	case *undefined:
		return nil, f.fail()
	}
	return nil, fmt.Errorf("found a call of a value of type %s, want a function", typeName(f))
}

// closure is a macro that sees the variables of s.
func (r *run) closure(m *macroNode, s *scope) *function {
	return &function{name: m.name, macro: m, call: func(r *run, a *arguments) (value, error) {
		return r.callMacro(m, a, s)
	}}
}

func (r *run) callMacro(m *macroNode, a *arguments, outer *scope) (value, error) {
	if err := r.deeper("macro " + quoted(m.name)); err != nil {
		return nil, err
	}
	defer func() { r.calls-- }()
	s, err := r.enter(outer, m.own)
	if err != nil {
		return nil, err
	}
	used := make([]bool, len(a.names))
	byName := func(name string) (value, bool) {
		for i, n := range a.names {
			if n == name {
				used[i] = true
				return a.named[i], true
			}
		}
		return nil, false
	}
	if err := r.charge(product(len(m.parameters), itemCost+len(m.parameters)+len(a.names))); err != nil {
		return nil, err
	}
	var absent []int
	for i, name := range m.parameters {
		switch {
		case i < len(a.args):
			s.set(name, a.args[i])
		default:
			v, ok := byName(name)
			if !ok {
				absent = append(absent, i)
			}
			s.set(name, v)
		}
	}
	if m.caller {
		v, ok := byName("caller")
		if !ok || v == nil {
			v = &undefined{"No caller defined"}
		}
		s.set("caller", v)
	}
	if err := m.surplus(r, a, used, s); err != nil {
		return nil, err
	}
	for _, i := range absent {
		name := m.parameters[i]
		d := i - (len(m.parameters) - len(m.defaults))
		if d < 0 {
			s.set(name, &undefined{"parameter '" + name + "' was not provided"})
			continue
		}
		v, err := r.eval(m.defaults[d], s)
		if err != nil {
			return nil, err
		}
		s.set(name, v)
	}
	return r.capture(func() error {
		_, err := r.block(m.body, s)
		return err
	})
}

// surplus deals with arguments that no parameter takes.
func (m *macroNode) surplus(r *run, a *arguments, used []bool, s *scope) error {
	rest := newDict(0)
	for i, name := range a.names {
		if used[i] {
			continue
		}
		if !m.kwargs {
			return fmt.Errorf("macro %s: found the argument %s, want %s", quoted(m.name), quoted(name), strings.Join(m.parameters, ", "))
		}
		if err := rest.set(r, name, a.named[i]); err != nil {
			return err
		}
	}
	if m.kwargs {
		s.set("kwargs", rest)
	}
	more := a.args[min(len(a.args), len(m.parameters)):]
	if m.varargs {
		s.set("varargs", newTuple(more...))
	} else if len(more) > 0 {
		return fmt.Errorf("macro %s: found %d arguments, want at most %d", quoted(m.name), len(a.args), len(m.parameters))
	}
	return nil
}
