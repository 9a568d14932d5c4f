package jinja

import (
	"fmt"
	"slices"
	"strings"
)

var constants = map[string]value{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) expression() (expr, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	at, start := line(p.current().line), p.pos
	x, err := p.or()
	for err == nil && p.skipName("if") {
		c := &condExpr{line: at, then: x}
		if c.test, err = p.or(); err == nil && p.skipName("else") {
			c.otherwise, err = p.expression()
		}
		if err == nil {
			err = p.grow()
		}
		x = c
		p.forgive(start)
	}
	return x, err
}

// tuple parses an expression, or several with commas between. It ends before a name
// of end.
func (p *parser) tuple(conditional bool, end ...string) (expr, error) {
	at := line(p.current().line)
	parse := p.expression
	if !conditional {
		parse = p.or
	}
	var items []expr
	for {
		if p.tupleEnd(end) {
			break
		}
		x, err := parse()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.skipIf(",") {
			if len(items) == 1 {
				return x, nil
			}
			break
		}
	}
	if len(items) == 0 {
		return nil, p.unexpected("an expression")
	}
	return &listExpr{at, items, true}, nil
}

func (p *parser) tupleEnd(end []string) bool {
	t := p.current()
	return t.kind == kindPrintEnd || t.kind == kindBlockEnd || t.is(")") || t.isName(end...)
}

func (p *parser) or() (expr, error) {
	return p.logic("or", func() (expr, error) { return p.logic("and", p.not) })
}

func (p *parser) logic(name string, operand func() (expr, error)) (expr, error) {
	at := line(p.current().line)
	a, err := operand()
	for err == nil && p.skipName(name) {
		var b expr
		if b, err = operand(); err == nil {
			err = p.grow()
		}
		a = &logicExpr{at, name == "or", a, b}
	}
	return a, err
}

func (p *parser) not() (expr, error) {
	t := p.current()
	if !t.isName("not") {
		return p.compare()
	}
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	p.pos++
	x, err := p.not()
	return &unaryExpr{line(t.line), "not", x}, err
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() (expr, error) {
	at := line(p.current().line)
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{line: at, first: first}
	for {
		op, t := "", p.current()
		switch {
		case t.kind == kindOperator && slices.Contains(comparisons, t.text):
			op = t.text
			p.pos++
		case p.skipName("in"):
			op = "in"
		case t.isName("not") && p.look().isName("in"):
			op = "notin"
			p.pos += 2
		default:
			if len(c.rest) == 0 {
				return first, nil
			}
			return c, nil
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.rest = append(c.rest, comparison{op, x})
	}
}

// sum binds weaker than "~", and that weaker than the product.
func (p *parser) sum() (expr, error) { return p.binary(p.concat, "+", "-") }

func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

// power is bound to the left, as nowhere but in Jinja.
func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	at := line(p.current().line)
	a, err := operand()
	for err == nil && p.current().kind == kindOperator && slices.Contains(ops, p.current().text) {
		op := p.advance().text
		var b expr
		if b, err = operand(); err == nil {
			err = p.grow()
		}
		a = &binaryExpr{at, op, a, b}
	}
	return a, err
}

func (p *parser) concat() (expr, error) {
	at := line(p.current().line)
	x, err := p.product()
	if err != nil || !p.current().is("~") {
		return x, err
	}
	c := &concatExpr{at, []expr{x}}
	for p.skipIf("~") {
		x, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, x)
	}
	return c, nil
}

// unary parses a value with what is bound to it. Jinja binds filters weaker than a
// sign, and attributes and calls to the signed value.
func (p *parser) unary(filters bool) (x expr, err error) {
	if t := p.current(); t.is("-") || t.is("+") {
		leave, err := p.enter()
		if err != nil {
			return nil, err
		}
		p.pos++
		x, err = p.unary(false)
		leave()
		if err != nil {
			return nil, err
		}
		x = &unaryExpr{line(t.line), t.text, x}
	} else if x, err = p.primary(); err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !filters {
		return x, err
	}
	for {
		switch t := p.current(); {
		case t.is("|"):
			x, err = p.filters(x)
		case t.isName("is"):
			x, err = p.test(x)
		case t.is("("):
			x, err = p.callOf(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) primary() (expr, error) {
	t := p.current()
	at := line(t.line)
	switch {
	case t.kind == kindName:
		p.pos++
		if v, ok := constants[t.text]; ok {
			return &constExpr{at, v}, nil
		}
		p.read[t.text] = true
		p.uses(t.text)
		return &nameExpr{at, t.text}, nil
	case t.kind == kindString:
		var b strings.Builder
		for p.current().kind == kindString { // side by side they are one
			b.WriteString(p.advance().val.(string))
		}
		return &constExpr{at, b.String()}, nil
	case t.kind == kindNumber:
		p.pos++
		return &constExpr{at, t.val}, nil
	case t.is("("):
		p.pos++
		if p.skipIf(")") {
			return &listExpr{at, nil, true}, nil
		}
		x, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return x, p.expect(")")
	case t.is("["):
		p.pos++
		items, err := p.items("]")
		return &listExpr{at, items, false}, err
	case t.is("{"):
		return p.dict()
	}
	return nil, p.unexpected("an expression")
}

// items parses expressions with commas between, up to a bracket.
func (p *parser) items(end string) ([]expr, error) {
	var items []expr
	for !p.skipIf(end) {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.skipIf(end) {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return items, nil
}

func (p *parser) dict() (expr, error) {
	d := &dictExpr{line: line(p.advance().line)}
	for !p.skipIf("}") {
		if len(d.keys) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.skipIf("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, x)
	}
	return d, nil
}

// checkName refuses filters and tests that do not exist, unless a condition keeps
// them from running: then they are an error only if they run.
func (p *parser) checkName(what, name string, known bool) {
	if !known && !p.soft {
		at := p.pos - 1
		p.unknown = append(p.unknown, unknownName{at, &positioned{p.tokens[at].line, errNoSuch(what, name)}})
	}
}

// unknownName is a filter or test that does not exist, and its token.
type unknownName struct {
	token int
	err   error
}

// forgive forgets the names from a token on.
func (p *parser) forgive(start int) {
	p.unknown = slices.DeleteFunc(p.unknown, func(u unknownName) bool { return u.token >= start })
}

func errNoSuch(what, name string) error {
	return fmt.Errorf("found the %s %s, want one that chat templates have", what, quoted(name))
}
