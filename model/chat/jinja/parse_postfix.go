package jinja

import "fmt"

// postfix parses the attributes, elements and calls of a value.
func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch t := p.current(); {
		case t.is("."):
			x, err = p.attribute(x)
		case t.is("["):
			x, err = p.subscript(x)
		case t.is("("):
			x, err = p.callOf(x)
		default:
			return x, nil
		}
		if err == nil {
			err = p.grow()
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(x expr) (expr, error) {
	at := line(p.advance().line)
	switch t := p.advance(); {
	case t.kind == kindName:
		return &attrExpr{at, x, t.text}, nil
	case t.kind == kindNumber:
		if _, float := t.val.(float64); !float {
			return &itemExpr{at, x, &constExpr{at, t.val}}, nil
		}
	}
	p.pos--
	return nil, p.unexpected("a name or a number after the dot")
}

func (p *parser) subscript(x expr) (expr, error) {
	at := line(p.advance().line)
	var items []expr
	for !p.skipIf("]") {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		item, slice, err := p.subscribed(at, x)
		if err != nil {
			return nil, err
		}
		if slice != nil {
			if len(items) > 0 {
				return nil, p.unexpected("one slice, not several")
			}
			return slice, p.expect("]")
		}
		items = append(items, item)
	}
	if len(items) == 1 {
		return &itemExpr{at, x, items[0]}, nil
	}
	return &itemExpr{at, x, &listExpr{at, items, true}}, nil
}

// subscribed parses an index, or a slice of x.
func (p *parser) subscribed(at line, x expr) (index expr, slice *sliceExpr, err error) {
	slice = &sliceExpr{line: at, x: x}
	if !p.skipIf(":") {
		if index, err = p.expression(); err != nil || !p.skipIf(":") {
			return index, nil, err
		}
		slice.start = index
	}
	bound := func() (expr, error) {
		if t := p.current(); t.is(":") || t.is("]") || t.is(",") {
			return nil, nil
		}
		return p.expression()
	}
	if slice.stop, err = bound(); err == nil && p.skipIf(":") {
		slice.step, err = bound()
	}
	return nil, slice, err
}

func (p *parser) callOf(x expr) (expr, error) {
	at := line(p.current().line)
	args, err := p.arguments()
	if err == nil {
		err = p.grow()
	}
	return &callExpr{at, x, args}, err
}

func (p *parser) arguments() (a callArgs, err error) {
	if err := p.expect("("); err != nil {
		return a, err
	}
	fail := func() error {
		return &positioned{p.current().line, fmt.Errorf("found arguments in the wrong order, want those without a name first, then those with one, *list and **dict")}
	}
	for comma := false; !p.current().is(")"); comma = true {
		if comma {
			if err := p.expect(","); err != nil {
				return a, err
			}
			if p.current().is(")") {
				break
			}
		}
		var into *expr
		switch t := p.current(); {
		case t.is("*"):
			if a.list != nil || a.mapping != nil {
				return a, fail()
			}
			p.pos++
			into = &a.list
		case t.is("**"):
			if a.mapping != nil {
				return a, fail()
			}
			p.pos++
			into = &a.mapping
		case t.kind == kindName && p.look().is("="):
			if a.mapping != nil {
				return a, fail()
			}
			p.pos += 2
			a.names, a.named = append(a.names, t.text), append(a.named, nil)
			into = &a.named[len(a.named)-1]
		default:
			if a.list != nil || a.mapping != nil || len(a.named) > 0 {
				return a, fail()
			}
			a.args = append(a.args, nil)
			into = &a.args[len(a.args)-1]
		}
		if *into, err = p.expression(); err != nil {
			return a, err
		}
	}
	return a, p.expect(")")
}

func (p *parser) filters(x expr) (expr, error) {
	for p.skipIf("|") {
		var err error
		if x, err = p.filter(x); err == nil {
			err = p.grow()
		}
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// dotted is a name, maybe with dots.
func (p *parser) dotted() (string, error) {
	name, err := p.name()
	for err == nil && p.skipIf(".") {
		var part string
		part, err = p.name()
		name += "." + part
	}
	return name, err
}

// filter parses the name of a filter and its arguments.
func (p *parser) filter(x expr) (expr, error) {
	f := &filterExpr{line: line(p.current().line), x: x}
	var err error
	if f.name, err = p.dotted(); err != nil {
		return nil, err
	}
	p.checkName("filter", f.name, filters[f.name] != nil)
	if p.current().is("(") {
		f.args, err = p.arguments()
	}
	return f, err
}

// test parses what follows "is".
func (p *parser) test(x expr) (expr, error) {
	f := &testExpr{line: line(p.advance().line), x: x}
	negated := p.skipName("not")
	var err error
	if f.name, err = p.dotted(); err != nil {
		return nil, err
	}
	p.checkName("test", f.name, tests[f.name] != nil)
	switch t := p.current(); {
	case t.is("("):
		f.args, err = p.arguments()
	case t.isName("is"):
		return nil, p.unexpected("no second test")
	case t.kind == kindName && !t.isName("else", "or", "and"), t.kind == kindString, t.kind == kindNumber, t.is("["), t.is("{"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		f.args.args = []expr{arg}
	}
	if err == nil {
		err = p.grow()
	}
	if negated {
		return &unaryExpr{f.line, "not", f}, err
	}
	return f, err
}
