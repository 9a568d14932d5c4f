package jinja

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

func (s *scope) setName(name string, v value) {
	for i, n := range s.names {
		if n == name {
			s.values[i] = v
			return
		}
	}
	s.names, s.values = append(s.names, name), append(s.values, v)
}

// notYet is the value of a block's own name until it is set.
type notYet struct{}

// enter begins a block with names of its own.
func (r *run) enter(outer *scope, names own) *scope {
	s := &scope{outer: outer}
	if r.chargeItems(len(names)) {
		for _, name := range names {
			s.names, s.values = append(s.names, name), append(s.values, notYet{})
		}
	}
	return s
}

// assign stores v in a target whose scope is s.
func (r *run) assign(t *target, v value, s *scope) {
	switch {
	case t.tuple:
		for i, item := range r.unpack(v, len(t.parts)) {
			r.assign(t.parts[i], item, s)
		}
	case t.attribute != "":
		holder, _, read := s.lookup(t.name)
		r.charge(read)
		if ns, ok := holder.(*namespace); ok {
			ns.vars.setItem(r, t.attribute, v)
		} else {
			r.failWith("set %s.%s: found %s, want a namespace", t.name, t.attribute, typeName(holder))
		}
	case r.charge(itemCost + len(s.names)):
		s.setName(t.name, v)
	}
}

// unpack takes a value apart into n; it gives none where there are not as many.
func (r *run) unpack(v value, n int) []value {
	items := r.iterate(v)
	if len(items) != n {
		r.failWith("found %d values to unpack, want %d", len(items), n)
		return nil
	}
	return items
}
