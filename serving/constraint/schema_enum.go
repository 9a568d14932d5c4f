package constraint

import "fmt"

// emitEnum admits the constants that the rest of the shape admits.
func (c *schemaCompiler) emitEnum(s *shape) (*expr, error) {
	list, err := c.constantsOf(s)
	return constants(list), err
}

func (c *schemaCompiler) constantsOf(s *shape) (list []*value, err error) {
	rest := s.clone()
	rest.enum = nil
	for _, v := range s.enum {
		fits, err := c.fits(v, rest)
		if err != nil {
			return nil, s.enumAt.errorf("constants: %v", err)
		}
		if fits {
			list = append(list, v)
		}
	}
	return list, nil
}

// about tells whether more than the type is said of values of a kind.
func (s *shape) about(kind typeSet) bool {
	switch {
	case kind == stringType:
		return len(s.texts) > 0 || s.length != counts{0, unbounded}
	case kind&numberType != 0:
		return s.lo.value != nil || s.hi.value != nil || s.multiple != nil
	}
	return false
}

// fits tells whether the shape admits a constant. Strings and numbers are held against their automata, objects and lists are
// gone through, since their texts may have another order.
func (c *schemaCompiler) fits(v *value, s *shape) (bool, error) {
	if c.shapes++; c.shapes > maxShapes {
		return false, errTooLarge
	}
	if len(s.choices) > 0 {
		return c.fitsChoice(v, s)
	}
	if v.kind&s.types == 0 || s.excludes(v) || s.enum != nil && len(common(s.enum, []*value{v})) == 0 {
		return false, nil
	}
	switch {
	case v.kind == objectType:
		return c.fitsObject(v, s)
	case v.kind == arrayType:
		return c.fitsArray(v, s)
	case !s.about(v.kind):
		return true, nil
	}
	scalar := s.clone()
	scalar.enum, scalar.types, scalar.typed, scalar.excluded = nil, s.types&v.kind, true, nil
	x, err := c.emit(scalar)
	if err != nil || x.isNever() {
		return false, err
	}
	x, err = regular([]*expr{x, constants([]*value{v})}, nil, &c.work)
	return err == nil && !x.isNever(), err
}

func (c *schemaCompiler) fitsChoice(v *value, s *shape) (bool, error) {
	rest := s.clone()
	group := rest.choices[0]
	rest.choices = rest.choices[1:]
	found := 0
	for _, l := range group.list {
		one := rest.clone()
		if err := c.collect(one, l, 0); err != nil {
			return false, err
		}
		fits, err := c.fits(v, one)
		if err != nil {
			return false, err
		}
		if fits {
			found++
		}
	}
	return found == 1 || found > 0 && !group.exclusive, nil
}

// fitsAll tells whether a constant is valid against all schemas of a list.
func (c *schemaCompiler) fitsAll(v *value, list []located) (bool, error) {
	s := newShape()
	for _, l := range list {
		if err := c.collect(s, l, 0); err != nil {
			return false, err
		}
	}
	return c.fits(v, s)
}

func (c *schemaCompiler) fitsObject(v *value, s *shape) (bool, error) {
	o := objectEmitter{schemaCompiler: c, shape: s}
	if len(s.another) > 0 || s.last != nil {
		return false, s.at.errorf("another member that has to be there is not enforced of constants")
	}
	if !s.members.has(len(v.keys)) {
		return false, nil
	}
	for _, name := range s.required {
		if v.fields[name] == nil {
			return false, nil
		}
	}
	for _, name := range v.keys {
		list, err := o.valuesOf(name)
		if err != nil {
			return false, err
		}
		if fits, err := c.fitsAll(v.fields[name], list); !fits {
			return false, err
		}
	}
	return true, nil
}

func (c *schemaCompiler) fitsArray(v *value, s *shape) (bool, error) {
	if len(s.contains) > 0 || s.unique != nil {
		return false, s.at.errorf("contains and uniqueItems are not enforced of constants")
	}
	if !s.items.has(len(v.items)) {
		return false, nil
	}
	for i, item := range v.items {
		if fits, err := c.fitsAll(item, s.itemAt(i)); !fits {
			return false, err
		}
	}
	return true, nil
}

func typeOf(t typeSet) string {
	for _, name := range []string{"null", "boolean", "string", "number", "array", "object"} {
		if typeNames[name]&t != 0 {
			return name + "s"
		}
	}
	return "nothing"
}

func (c *schemaCompiler) emitNumber(s *shape, types typeSet) (x *expr, err error) {
	whole, places := types&fractionType == 0, fractionDigits
	if whole {
		places = 0
	}
	switch {
	case s.multiple != nil && types&integerType == 0:
		err = fmt.Errorf("multiples that are no integers are not enforced")
	case s.multiple != nil:
		x, err = multiples(s.lo, s.hi, s.multiple, whole)
	case types&integerType == 0 && s.lo.value == nil && s.hi.value == nil:
		return ref(jsonFraction), nil
	case types&integerType == 0:
		if x, err = interval(s.lo, s.hi, fractionDigits); err == nil {
			x, err = regular([]*expr{x}, []*expr{signed(seq(rep(digit, 1, unbounded), opt(seq(lit("."), rep(lit("0"), 0, unbounded)))))}, &c.work)
		}
	case s.lo.value != nil || s.hi.value != nil:
		x, err = interval(s.lo, s.hi, places)
	case whole:
		return ref(jsonInteger), nil
	default:
		return ref(jsonNumber), nil
	}
	if err != nil {
		return nil, s.at.errorf("%v", err)
	}
	return x, nil
}
