package jinja

import "fmt"

func (p *parser) macro(at line) (stmt, error) {
	name, err := p.storedName()
	if err != nil {
		return nil, err
	}
	m := &macroNode{name: name}
	if err := p.signature(m); err != nil {
		return nil, err
	}
	return &macroStmt{at, m}, p.macroBody(m, "endmacro")
}

func (p *parser) call(at line) (stmt, error) {
	block := &macroNode{name: "caller"}
	if p.current().is("(") {
		if err := p.signature(block); err != nil {
			return nil, err
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, &positioned{int(at), fmt.Errorf("found no call in a call block, want one, as in {%% call macro() %%}")}
	}
	return &callStmt{at, call, block}, p.macroBody(block, "endcall")
}

// generation marks the assistant's text for training; it prints its body.
func (p *parser) generation(at line) (stmt, error) {
	s := &generationStmt{line: at}
	err := p.isolated(func() (err error) {
		s.body, _, err = p.body("endgeneration")
		return err
	})
	return s, err
}

// isolated parses a body that is a function of its own: no jump leads out of it.
func (p *parser) isolated(parse func() error) error {
	defer func(loops int) { p.loops = loops }(p.loops)
	p.loops = 0
	return p.hard(parse)
}

func (p *parser) macroBody(m *macroNode, end string) error {
	p.macros = append(p.macros, m)
	err := p.isolated(func() (err error) {
		m.body, _, err = p.body(end)
		return err
	})
	p.macros = p.macros[:len(p.macros)-1]
	for i, name := range m.parameters {
		switch name {
		case "kwargs":
			m.kwargs = false
		case "varargs":
			m.varargs = false
		case "caller":
			if err == nil && m.caller && i < len(m.parameters)-len(m.defaults) {
				return fmt.Errorf("macro %s: found the parameter caller without a default, want one", quoted(m.name))
			}
			m.caller = false
		}
	}
	return err
}

// uses notes the names that a macro is given without declaring them.
func (p *parser) uses(name string) {
	for _, m := range p.macros {
		switch name {
		case "caller":
			m.caller = true
		case "kwargs":
			m.kwargs = true
		case "varargs":
			m.varargs = true
		}
	}
}

func (p *parser) signature(m *macroNode) error {
	if err := p.expect("("); err != nil {
		return err
	}
	for !p.current().is(")") {
		if len(m.parameters) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		name, err := p.storedName()
		if err != nil {
			return err
		}
		m.parameters = append(m.parameters, name)
		if p.skipIf("=") {
			x, err := p.expression()
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, x)
		} else if len(m.defaults) > 0 {
			return p.unexpected(`"=" and a default for the parameter %s`, quoted(name))
		}
	}
	return p.expect(")")
}

// storedName is a name that can be assigned to.
func (p *parser) storedName() (string, error) {
	if _, constant := constants[p.current().text]; constant {
		return "", p.unexpected("a name")
	}
	return p.name()
}

// target parses what is assigned to; attributes tells whether attributes of
// namespaces may be. It ends before a name of end.
func (p *parser) target(attributes bool, end ...string) (*target, error) {
	t := &target{line: line(p.current().line)}
	for {
		if len(t.parts) > 0 && p.tupleEnd(end) {
			break
		}
		part, err := p.targetPart(attributes)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part)
		if !p.skipIf(",") {
			break
		}
		t.tuple = true
	}
	if !t.tuple {
		return t.parts[0], nil
	}
	return t, nil
}

func (p *parser) targetPart(attributes bool) (*target, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if p.skipIf("(") {
		inner, err := p.target(attributes)
		if err != nil {
			return nil, err
		}
		return inner, p.expect(")")
	}
	at := line(p.current().line)
	name, err := p.storedName()
	if err != nil {
		return nil, err
	}
	t := &target{line: at, name: name}
	if attributes && p.skipIf(".") {
		t.attribute, err = p.name()
	}
	return t, err
}
