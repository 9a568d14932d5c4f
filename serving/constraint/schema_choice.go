package constraint

// emitChoice is one alternative of the first anyOf, oneOf or the like with the rest of the shape.
func (c *schemaCompiler) emitChoice(s *shape) (*expr, error) {
	rest := s.clone()
	group := rest.choices[0]
	rest.choices = rest.choices[1:]
	if rest.taken++; rest.taken > maxSchemaDepth {
		return nil, s.at.errorf("the alternatives refer to the schema itself, or more than %d hold together", maxSchemaDepth)
	}
	var list []*expr
	for i, l := range group.list {
		if rest.bare() && !group.exclusive {
			x, err := c.compile(l)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
			continue
		}
		one := rest.clone()
		if err := c.collect(one, l, 0); err != nil {
			return nil, err
		}
		if c.impossible(one, 0) {
			continue
		}
		changed := false
		if group.exclusive {
			var err error
			if changed, err = c.excludeOthers(one, group.list, i); err != nil {
				return nil, err
			}
		}
		var x *expr
		var err error
		if rest.bare() && !changed {
			x, err = c.compile(l)
		} else {
			x, err = c.emit(one)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return alt(list...), nil
}

// excludeOthers adds to a shape, which has the schema i of a list, that the others do not hold, where they could.
func (c *schemaCompiler) excludeOthers(s *shape, list []located, i int) (changed bool, err error) {
	base := s.clone()
	for j, other := range list {
		if j == i {
			continue
		}
		both := base.clone()
		if err := c.collect(both, other, 0); err != nil {
			return false, err
		}
		if c.impossible(both, 0) {
			continue
		}
		changed = true
		if err := c.collect(s, other.not(), 0); err != nil {
			return false, list[i].errorf("oneOf: %s may be valid, too: %v", other.path, err)
		}
	}
	return changed, nil
}

// maxLooked is how far impossible looks into required members.
const maxLooked = 3

// impossible tells whether no value is admitted, as far as types, constants, and members that have to be there say.
// What is passed over in alternatives does not multiply.
func (c *schemaCompiler) impossible(s *shape, depth int) bool {
	types := s.shown()
	if s.enum != nil {
		types = s.types
		possible := false
		for _, v := range s.enum {
			possible = possible || v.kind&types != 0 && !s.excludes(v) && s.within(v)
		}
		if !possible {
			return true
		}
	}
	if types == 0 {
		return true
	}
	if types == objectType && depth < maxLooked {
		for _, name := range s.required {
			member := newShape()
			for _, part := range s.objects {
				if l, ok := part.properties[name]; ok && c.collect(member, l, 0) != nil {
					return false // which is an error later
				} else if !ok && part.additional != nil && part.additional.text == "false" && len(part.patterns) == 0 {
					return true
				}
			}
			if c.impossible(member, depth+1) {
				return true
			}
		}
	}
	return false
}

// within tells whether a number is between the bounds; others are.
func (s *shape) within(v *value) bool {
	if v.kind&numberType == 0 {
		return true
	}
	r, err := v.rational()
	if err != nil {
		return true
	}
	if lo := s.lo.value; lo != nil && (r.Cmp(lo) < 0 || r.Cmp(lo) == 0 && s.lo.open) {
		return false
	}
	hi := s.hi.value
	return hi == nil || r.Cmp(hi) < 0 || r.Cmp(hi) == 0 && !s.hi.open
}
