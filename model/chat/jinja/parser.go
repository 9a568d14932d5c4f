package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// parser builds the tree of a template.
type parser struct {
	tokens []token
	pos    int
	depth  int          // of nested statements and expressions
	words  int          // operators of the current tag
	loops  int          // around the current statement, within its macro
	soft   bool         // in a condition, where names are checked when they are used
	macros []*macroNode // around the current expression

	unknown []unknownName
	read    map[string]bool // names of variables that are read
}

func (p *parser) current() token { return p.tokens[p.pos] }

func (p *parser) look() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) advance() token {
	t := p.current()
	if t.kind != kindEOF {
		p.pos++
	}
	return t
}

func (t token) is(op string) bool { return t.kind == kindOperator && t.text == op }

func (t token) isName(names ...string) bool {
	return t.kind == kindName && slices.Contains(names, t.text)
}

func (p *parser) skipIf(op string) bool {
	if p.current().is(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.current().isName(name) {
		p.pos++
		return true
	}
	return false
}

// unexpected is the error for the current token.
func (p *parser) unexpected(want string, args ...any) error {
	t := p.current()
	return &positioned{t.line, fmt.Errorf("found %s, want %s", t.found(), fmt.Sprintf(want, args...))}
}

func (p *parser) expect(op string) error {
	if !p.skipIf(op) {
		return p.unexpected("%q", op)
	}
	return nil
}

func (p *parser) expectKind(k kind) error {
	if p.current().kind != k {
		return p.unexpected("%s", token{kind: k}.found())
	}
	p.pos++
	return nil
}

func (p *parser) name() (string, error) {
	if p.current().kind != kindName {
		return "", p.unexpected("a name")
	}
	return p.advance().text, nil
}

// enter goes one level deeper; what it returns comes back.
func (p *parser) enter() (leave func(), err error) {
	if p.depth++; p.depth > maxDepth {
		p.depth--
		return nil, &positioned{p.current().line, fmt.Errorf("found statements or expressions nested more than %d deep", maxDepth)}
	}
	return func() { p.depth-- }, nil
}

// grow counts the operators of a tag, which nest to the left.
func (p *parser) grow() error {
	if p.words++; p.words > maxOperators {
		return &positioned{p.current().line, fmt.Errorf("found more than %d operators in a tag", maxOperators)}
	}
	return nil
}

// statements parses up to a tag with one of the names, which becomes the current
// token; without names up to the end of the template.
func (p *parser) statements(end ...string) ([]stmt, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var body []stmt
	for {
		t := p.advance()
		p.words = 0
		switch t.kind {
		case kindEOF:
			if len(end) > 0 {
				return nil, p.unexpected("{%% %s %%}", strings.Join(end, " %} or {% "))
			}
			return body, nil
		case kindData:
			body = append(body, &textStmt{line(t.line), t.text})
		case kindPrintBegin:
			x, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			if err := p.expectKind(kindPrintEnd); err != nil {
				return nil, err
			}
			body = append(body, &printStmt{line(t.line), []expr{x}})
		case kindBlockBegin:
			if p.current().isName(end...) {
				return body, nil
			}
			s, err := p.statement(end)
			if err != nil {
				return nil, err
			}
			if err := p.expectKind(kindBlockEnd); err != nil {
				return nil, err
			}
			body = append(body, s)
		}
	}
}

// body parses the statements of a block up to its end tag, whose name is skipped
// and returned.
func (p *parser) body(end ...string) ([]stmt, string, error) {
	p.skipIf(":") // as in Python
	if err := p.expectKind(kindBlockEnd); err != nil {
		return nil, "", err
	}
	body, err := p.statements(end...)
	if err != nil {
		return nil, "", err
	}
	return body, p.advance().text, nil
}

var statements map[string]func(p *parser, at line) (stmt, error)

func init() {
	statements = map[string]func(p *parser, at line) (stmt, error){
		"set": (*parser).set, "for": (*parser).loop, "if": (*parser).condition, "with": (*parser).with,
		"macro": (*parser).macro, "call": (*parser).call, "filter": (*parser).filterBlock, "print": (*parser).print,
		"generation": (*parser).generation, "break": (*parser).jump, "continue": (*parser).jump,
	}
}

func (p *parser) statement(end []string) (stmt, error) {
	t := p.current()
	if t.kind != kindName {
		return nil, p.unexpected("the name of a block")
	}
	parse, ok := statements[t.text]
	switch {
	case ok:
		p.pos++
		return parse(p, line(t.line))
	case len(end) > 0:
		return nil, p.unexpected("a block or {%% %s %%}", strings.Join(end, " %} or {% "))
	}
	return nil, p.unexpected("a block that chat templates have")
}

func (p *parser) print(at line) (stmt, error) {
	s := &printStmt{line: at}
	for p.current().kind != kindBlockEnd {
		if len(s.values) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.values = append(s.values, x)
	}
	return s, nil
}

func (p *parser) set(at line) (stmt, error) {
	to, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skipIf("=") {
		x, err := p.tuple(true)
		return &setStmt{at, to, x}, err
	}
	s := &setBlockStmt{line: at, target: to}
	err = p.hard(func() (err error) {
		if p.current().is("|") {
			if s.filter, err = p.filters(&captured{line: at}); err != nil {
				return err
			}
		}
		s.body, _, err = p.body("endset")
		return err
	})
	return s, err
}

// hard parses what Jinja does not take for conditional: the names of filters and
// tests are checked at once.
func (p *parser) hard(parse func() error) error {
	defer func(soft bool) { p.soft = soft }(p.soft)
	p.soft = false
	return parse()
}

func (p *parser) loop(at line) (stmt, error) {
	s := &forStmt{line: at}
	var err error
	if s.target, err = p.target(false, "in"); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.unexpected(`"in"`)
	}
	if s.iterable, err = p.tuple(false, "recursive"); err != nil {
		return nil, err
	}
	err = p.hard(func() error {
		if p.skipName("if") {
			if s.filter, err = p.expression(); err != nil {
				return err
			}
		}
		s.recursive = p.skipName("recursive")
		var end string
		p.loops++
		s.body, end, err = p.body("endfor", "else")
		p.loops--
		if err == nil && end == "else" {
			s.otherwise, _, err = p.body("endfor")
		}
		return err
	})
	return s, err
}

func (p *parser) condition(at line) (stmt, error) {
	defer func(soft bool) { p.soft = soft }(p.soft)
	p.soft = true
	s := &ifStmt{line: at}
	for {
		test, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		body, end, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.branches = append(s.branches, branch{test, body})
		switch end {
		case "else":
			s.otherwise, _, err = p.body("endif")
			return s, err
		case "endif":
			return s, nil
		}
	}
}

func (p *parser) with(at line) (stmt, error) {
	s := &withStmt{line: at}
	for p.current().kind != kindBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		to, err := p.target(false)
		if err != nil {
			return nil, err
		}
		if err := p.expect("="); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, to), append(s.values, x)
	}
	err := p.hard(func() (err error) {
		s.body, _, err = p.body("endwith")
		return err
	})
	return s, err
}

func (p *parser) filterBlock(at line) (stmt, error) {
	s := &filterStmt{line: at}
	var err error
	if s.filter, err = p.filter(&captured{line: at}); err != nil {
		return nil, err
	}
	if s.filter, err = p.filters(s.filter); err != nil {
		return nil, err
	}
	err = p.hard(func() error {
		s.body, _, err = p.body("endfilter")
		return err
	})
	return s, err
}

func (p *parser) jump(at line) (stmt, error) {
	name := p.tokens[p.pos-1].text
	if p.loops == 0 {
		return nil, &positioned{int(at), fmt.Errorf("found %q outside of a loop", name)}
	}
	if name == "break" {
		return &jumpStmt{at, breakLoop}, nil
	}
	return &jumpStmt{at, continueLoop}, nil
}
