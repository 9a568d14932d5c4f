package jinja

import "fmt"

// scope holds the variables of a block; what it lacks is looked for around it.
type scope struct {
	outer  *scope
	names  []string
	values []value
}

// lookup also returns how many names it read.
func (s *scope) lookup(name string) (v value, ok bool, read int) {
	for ; s != nil; s = s.outer {
		for i, n := range s.names {
			if n == name {
				if s.values[i] == (notYet{}) {
					return nil, false, read + i
				}
				return s.values[i], true, read + i
			}
		}
		read += len(s.names)
	}
	return nil, false, read
}

func (s *scope) set(name string, v value) {
	for i, n := range s.names {
		if n == name {
			s.values[i] = v
			return
		}
	}
	s.names, s.values = append(s.names, name), append(s.values, v)
}

func (s *scope) inner() *scope { return &scope{outer: s} }

// notYet is the value of a block's own name until it is set.
type notYet struct{}

// enter begins a block with names of its own.
func (r *run) enter(outer *scope, names own) (*scope, error) {
	s := outer.inner()
	if len(names) == 0 {
		return s, nil
	}
	for range names {
		s.values = append(s.values, notYet{})
	}
	s.names = append(s.names, names...)
	return s, r.chargeItems(len(names))
}

// assign stores v in a target whose scope is s.
func (r *run) assign(t *target, v value, s *scope) error {
	switch {
	case t.tuple:
		items, err := r.unpack(v, len(t.parts))
		if err != nil {
			return err
		}
		for i, part := range t.parts {
			if err := r.assign(part, items[i], s); err != nil {
				return err
			}
		}
	case t.attribute != "":
		holder, _, read := s.lookup(t.name)
		if err := r.charge(read); err != nil {
			return err
		}
		ns, ok := holder.(*namespace)
		if !ok {
			return fmt.Errorf("set %s.%s: found %s, want a namespace", t.name, t.attribute, typeName(holder))
		}
		return ns.vars.set(r, t.attribute, v)
	default:
		if err := r.charge(itemCost + len(s.names)); err != nil {
			return err
		}
		s.set(t.name, v)
	}
	return nil
}

// unpack takes a value apart into n.
func (r *run) unpack(v value, n int) ([]value, error) {
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	var items []value
	for {
		item, ok, err := it.take(r)
		switch {
		case err != nil:
			return nil, err
		case !ok && len(items) < n:
			return nil, fmt.Errorf("found %d values to unpack, want %d", len(items), n)
		case !ok:
			return items, nil
		case len(items) == n:
			return nil, fmt.Errorf("found more than %d values to unpack", n)
		}
		items = append(items, item)
	}
}
