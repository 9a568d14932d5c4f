package jinja

import (
	"slices"
	"strings"
)

var constants = map[string]value{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) expression() expr {
	defer p.enter()()
	at := p.currentLine()
	x := p.or()
	for p.skipName("if") {
		c := &condExpr{line: at, then: x, test: p.or()}
		if p.skipName("else") {
			c.otherwise = p.expression()
		}
		p.grow()
		x = c
	}
	return x
}

// tuple parses an expression, or several with commas between. It ends before a name
// of end.
func (p *parser) tuple(conditional bool, end ...string) expr {
	at := p.currentLine()
	parse := p.expression
	if !conditional {
		parse = p.or
	}
	var items []expr
	for !p.tupleEnd(end) {
		items = append(items, parse())
		if !p.skipIf(",") {
			if len(items) == 1 {
				return items[0]
			}
			break
		}
	}
	if len(items) == 0 {
		p.unexpected("an expression")
	}
	return &listExpr{at, kindTuple, items}
}

func (p *parser) tupleEnd(end []string) bool {
	t := p.current()
	return t.kind == kindPrintEnd || t.kind == kindBlockEnd || t.is(")") || t.isName(end...)
}

func (p *parser) or() expr {
	return p.logic("or", func() expr { return p.logic("and", p.not) })
}

func (p *parser) logic(name string, operand func() expr) expr {
	at := p.currentLine()
	a := operand()
	for p.skipName(name) {
		a = &logicExpr{at, name == "or", a, operand()}
		p.grow()
	}
	return a
}

func (p *parser) not() expr {
	at := p.currentLine()
	if !p.skipName("not") {
		return p.compare()
	}
	defer p.enter()()
	return &unaryExpr{at, "not", p.not()}
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() expr {
	c := &compareExpr{line: p.currentLine(), first: p.sum()}
	for {
		op, t := "", p.current()
		switch {
		case t.kind == kindOperator && slices.Contains(comparisons, t.text):
			op = p.advance().text
		case p.skipName("in"):
			op = "in"
		case t.isName("not") && p.look().isName("in"):
			op = "notin"
			p.pos += 2
		case len(c.rest) == 0:
			return c.first
		default:
			return c
		}
		c.rest = append(c.rest, comparison{op, p.sum()})
	}
}

// sum binds weaker than "~", and that weaker than the product.
func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) product() expr {
	return p.binary(func() expr { return p.unary(true) }, "*", "/", "//", "%")
}

func (p *parser) binary(operand func() expr, ops ...string) expr {
	at := p.currentLine()
	a := operand()
	for p.current().kind == kindOperator && slices.Contains(ops, p.current().text) {
		op := p.advance().text
		a = &binaryExpr{at, op, a, operand()}
		p.grow()
	}
	return a
}

func (p *parser) concat() expr {
	c := &concatExpr{p.currentLine(), []expr{p.product()}}
	for p.skipIf("~") {
		c.parts = append(c.parts, p.product())
	}
	if len(c.parts) == 1 {
		return c.parts[0]
	}
	return c
}

// unary parses a value with what is bound to it. Jinja binds filters weaker than a
// sign, and attributes and calls to the signed value.
func (p *parser) unary(filters bool) expr {
	var x expr
	if t := p.current(); t.is("-") || t.is("+") {
		leave := p.enter()
		p.advance()
		x = &unaryExpr{line(t.line), t.text, p.unary(false)}
		leave()
	} else {
		x = p.primary()
	}
	for x = p.postfix(x); filters; {
		switch t := p.current(); {
		case t.is("|"):
			x = p.filters(x)
		case t.isName("is"):
			x = p.test(x)
		case t.is("("):
			x = p.callOf(x)
		case t.is("**"):
			p.failAt(line(t.line), `the operator "**" is not supported`)
		default:
			return x
		}
	}
	return x
}

func (p *parser) primary() expr {
	t, at := p.current(), p.currentLine()
	switch {
	case t.kind == kindName:
		p.pos++
		if v, ok := constants[t.text]; ok {
			return &constExpr{at, v}
		}
		p.uses(t.text)
		return &nameExpr{at, t.text}
	case t.kind == kindString:
		var b strings.Builder
		for p.current().kind == kindString { // side by side they are one
			b.WriteString(p.advance().val.(string))
		}
		return &constExpr{at, b.String()}
	case t.kind == kindNumber:
		p.pos++
		return &constExpr{at, t.val}
	case t.is("("):
		p.pos++
		if p.skipIf(")") {
			return &listExpr{at, kindTuple, nil}
		}
		x := p.tuple(true)
		p.expect(")")
		return x
	case t.is("["):
		p.pos++
		x := &listExpr{at, kindList, nil}
		p.parseList("]", func() { x.items = append(x.items, p.expression()) })
		return x
	case t.is("{"):
		p.pos++
		d := &dictExpr{line: at}
		p.parseList("}", func() {
			d.keys = append(d.keys, p.expression())
			p.expect(":")
			d.values = append(d.values, p.expression())
		})
		return d
	}
	p.unexpected("an expression")
	return nil
}

// postfix parses the attributes, elements and calls of a value.
func (p *parser) postfix(x expr) expr {
	for {
		switch t := p.current(); {
		case t.is("."):
			x = p.attribute(x)
		case t.is("["):
			x = p.subscript(x)
		case t.is("("):
			x = p.callOf(x)
		default:
			return x
		}
		p.grow()
	}
}

func (p *parser) attribute(x expr) expr {
	at := line(p.advance().line)
	t := p.current()
	if _, isInt := t.val.(int64); t.kind == kindName || isInt {
		p.pos++
		if isInt {
			return &itemExpr{at, x, &constExpr{at, t.val}}
		}
		return &attrExpr{at, x, t.text}
	}
	p.unexpected("a name or a number after the dot")
	return nil
}

// subscript parses an index, or a slice of x.
func (p *parser) subscript(x expr) expr {
	s := &sliceExpr{line: line(p.advance().line), x: x}
	bound := func() expr {
		if t := p.current(); t.is(":") || t.is("]") {
			return nil
		}
		return p.expression()
	}
	s.start = bound()
	if !p.skipIf(":") {
		if s.start == nil {
			p.unexpected("an expression")
		}
		p.expect("]")
		return &itemExpr{s.line, x, s.start}
	}
	s.stop = bound()
	if p.skipIf(":") {
		s.step = bound()
	}
	p.expect("]")
	return s
}

func (p *parser) callOf(x expr) expr {
	at := p.currentLine()
	args := p.arguments()
	p.grow()
	return &callExpr{at, x, args}
}

func (p *parser) arguments() (a callArgs) {
	p.expect("(")
	p.parseList(")", func() {
		t := p.current()
		byName := t.kind == kindName && p.look().is("=")
		if a.mapping != nil || a.list != nil && !byName && !t.is("**") || len(a.named) > 0 && !byName && !t.is("*") && !t.is("**") {
			p.failAt(p.currentLine(), "found arguments in the wrong order, want those without a name first, then those with one, *list and **dict")
		}
		switch {
		case p.skipIf("*"):
			a.list = p.expression()
		case p.skipIf("**"):
			a.mapping = p.expression()
		case byName:
			p.pos += 2
			a.names, a.named = append(a.names, t.text), append(a.named, p.expression())
		default:
			a.args = append(a.args, p.expression())
		}
	})
	return a
}

func (p *parser) filters(x expr) expr {
	for p.skipIf("|") {
		x = p.filter(x)
		p.grow()
	}
	return x
}

// filter parses the name of a filter and its arguments.
func (p *parser) filter(x expr) expr {
	f := &filterExpr{line: p.currentLine(), x: x, name: p.name()}
	if p.current().is("(") {
		f.args = p.arguments()
	}
	return f
}

// test parses what follows "is".
func (p *parser) test(x expr) expr {
	f := &testExpr{line: line(p.advance().line), x: x}
	negated := p.skipName("not")
	f.name = p.name()
	switch t := p.current(); {
	case t.is("("):
		f.args = p.arguments()
	case t.isName("is"):
		p.unexpected("no second test")
	case t.kind == kindName && !t.isName("else", "or", "and"), t.kind == kindString, t.kind == kindNumber, t.is("["), t.is("{"):
		f.args.args = []expr{p.postfix(p.primary())}
	}
	p.grow()
	if negated {
		return &unaryExpr{f.line, "not", f}
	}
	return f
}
