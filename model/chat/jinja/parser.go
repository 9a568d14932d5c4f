package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// parser builds the tree of a template. Its first error ends it: the current token is the
// last one from then on, which nothing takes.
type parser struct {
	tokens []token
	err    error
	pos    int
	depth  int          // of nested statements and expressions
	words  int          // operators of the current tag
	loops  int          // around the current statement, within its macro
	macros []*macroNode // around the current expression

	read map[string]bool // names of variables that are read
}

func (p *parser) current() token { return p.tokens[p.pos] }

func (p *parser) currentLine() line { return line(p.current().line) }

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

// failAt ends the parsing with an error at a line.
func (p *parser) failAt(at line, format string, args ...any) {
	if p.err == nil {
		p.err = &positioned{int(at), fmt.Errorf(format, args...)}
	}
	p.pos = len(p.tokens) - 1
}

// unexpected is the error for the current token.
func (p *parser) unexpected(want string, args ...any) {
	p.failAt(p.currentLine(), "found %s, want %s", p.current().found(), fmt.Sprintf(want, args...))
}

func (p *parser) expect(op string) {
	if !p.skipIf(op) {
		p.unexpected("%q", op)
	}
}

func (p *parser) expectKind(k kind) {
	if p.current().kind != k {
		p.unexpected("%s", token{kind: k}.found())
		return
	}
	p.pos++
}

func (p *parser) name() string {
	if p.current().kind != kindName {
		p.unexpected("a name")
	}
	return p.advance().text
}

// enter goes one level deeper; what it returns comes back.
func (p *parser) enter() (leave func()) {
	if p.depth++; p.depth > maxDepth {
		p.failAt(p.currentLine(), "found statements or expressions nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }
}

// grow counts the operators of a tag, which nest to the left.
func (p *parser) grow() {
	if p.words++; p.words > maxOperators {
		p.failAt(p.currentLine(), "found more than %d operators in a tag", maxOperators)
	}
}

// parseList calls parse for what stands between commas, up to a closing bracket.
func (p *parser) parseList(end string, parse func()) {
	for n := 0; !p.skipIf(end) && p.err == nil; n++ {
		if n > 0 {
			if p.expect(","); p.skipIf(end) {
				return
			}
		}
		parse()
	}
}

// statements parses up to a tag with one of the names, which becomes the current
// token; without names up to the end of the template.
func (p *parser) statements(end ...string) []stmt {
	defer p.enter()()
	var body []stmt
	for {
		t := p.advance()
		p.words = 0
		switch t.kind {
		case kindEOF:
			if len(end) > 0 {
				p.unexpected("{%% %s %%}", strings.Join(end, " %} or {% "))
			}
			return body
		case kindData:
			body = append(body, &textStmt{line(t.line), t.text})
		case kindPrintBegin:
			body = append(body, &printStmt{line(t.line), p.tuple(true)})
			p.expectKind(kindPrintEnd)
		case kindBlockBegin:
			if p.current().isName(end...) {
				return body
			}
			body = append(body, p.statement(end))
			p.expectKind(kindBlockEnd)
		}
	}
}

// body parses the statements of a block up to its end tag, whose name is skipped
// and returned.
func (p *parser) body(end ...string) ([]stmt, string) {
	p.skipIf(":") // as in Python
	p.expectKind(kindBlockEnd)
	body := p.statements(end...)
	return body, p.advance().text
}

func (p *parser) statement(end []string) stmt {
	at, t := p.currentLine(), p.current()
	if t.kind != kindName {
		p.unexpected("the name of a block")
		return nil
	}
	p.pos++
	switch t.text {
	case "set":
		return p.parseSet(at)
	case "for":
		return p.loop(at)
	case "if":
		return p.condition(at)
	case "with":
		return p.with(at)
	case "macro":
		m := &macroNode{name: p.storedName()}
		p.signature(m)
		p.macroBody(m, "endmacro")
		return &macroStmt{at, m}
	case "call":
		return p.parseCall(at)
	case "filter":
		s := &captureStmt{line: at, filter: p.filters(p.filter(&captured{line: at}))}
		s.body, _ = p.body("endfilter")
		return s
	case "generation": // marks the assistant's text for training
		s := &captureStmt{line: at}
		s.body = p.isolated("endgeneration")
		return s
	case "break", "continue":
		if p.loops == 0 {
			p.failAt(at, "found %q outside of a loop", t.text)
		}
		return &jumpStmt{at, map[string]signal{"break": breakLoop, "continue": continueLoop}[t.text]}
	}
	p.pos--
	if len(end) > 0 {
		p.unexpected("a block or {%% %s %%}", strings.Join(end, " %} or {% "))
	}
	p.unexpected("a block that is supported")
	return nil
}

func (p *parser) parseSet(at line) stmt {
	to := p.target(true)
	if p.skipIf("=") {
		return &setStmt{at, to, p.tuple(true)}
	}
	s := &captureStmt{line: at, target: to}
	if p.current().is("|") {
		s.filter = p.filters(&captured{line: at})
	}
	s.body, _ = p.body("endset")
	return s
}

func (p *parser) loop(at line) stmt {
	s := &forStmt{line: at, target: p.target(false, "in")}
	if !p.skipName("in") {
		p.unexpected(`"in"`)
	}
	s.iterable = p.tuple(false, "recursive")
	if p.skipName("if") {
		s.filter = p.expression()
	}
	if p.current().isName("recursive") {
		p.failAt(at, "recursive loops are not supported")
	}
	var end string
	p.loops++
	s.body, end = p.body("endfor", "else")
	p.loops--
	if end == "else" {
		s.otherwise, _ = p.body("endfor")
	}
	return s
}

func (p *parser) condition(at line) stmt {
	s := &ifStmt{line: at}
	for p.err == nil {
		test := p.tuple(false)
		body, end := p.body("elif", "else", "endif")
		s.branches = append(s.branches, branch{test, body})
		if end == "else" {
			s.otherwise, _ = p.body("endif")
		}
		if end != "elif" {
			break
		}
	}
	return s
}

func (p *parser) with(at line) stmt {
	s := &withStmt{line: at}
	for p.current().kind != kindBlockEnd && p.err == nil {
		if len(s.targets) > 0 {
			p.expect(",")
		}
		s.targets = append(s.targets, p.target(false))
		p.expect("=")
		s.values = append(s.values, p.expression())
	}
	s.body, _ = p.body("endwith")
	return s
}

func (p *parser) parseCall(at line) stmt {
	block := &macroNode{name: "caller"}
	if p.current().is("(") {
		p.signature(block)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.failAt(at, "found no call in a call block, want one, as in {%% call macro() %%}")
	}
	p.macroBody(block, "endcall")
	return &callStmt{at, call, block}
}

// isolated parses a body that is a function of its own: no jump leads out of it.
func (p *parser) isolated(end string) []stmt {
	defer func(loops int) { p.loops = loops }(p.loops)
	p.loops = 0
	body, _ := p.body(end)
	return body
}

func (p *parser) macroBody(m *macroNode, end string) {
	p.macros = append(p.macros, m)
	m.body = p.isolated(end)
	p.macros = p.macros[:len(p.macros)-1]
	if i := slices.Index(m.parameters, "caller"); m.caller && i >= 0 && i < len(m.parameters)-len(m.defaults) {
		p.failAt(p.currentLine(), "macro %s: found the parameter caller without a default, want one", quoted(m.name))
	}
	m.caller = m.caller && !slices.Contains(m.parameters, "caller")
	m.kwargs = m.kwargs && !slices.Contains(m.parameters, "kwargs")
	m.varargs = m.varargs && !slices.Contains(m.parameters, "varargs")
}

// uses notes a name that is read, and tells macros those that they are given without declaring them.
func (p *parser) uses(name string) {
	p.read[name] = true
	for _, m := range p.macros {
		m.caller = m.caller || name == "caller"
		m.kwargs = m.kwargs || name == "kwargs"
		m.varargs = m.varargs || name == "varargs"
	}
}

func (p *parser) signature(m *macroNode) {
	p.expect("(")
	p.parseList(")", func() {
		name := p.storedName()
		m.parameters = append(m.parameters, name)
		if p.skipIf("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.unexpected(`"=" and a default for the parameter %s`, quoted(name))
		}
	})
}

// storedName is a name that can be assigned to.
func (p *parser) storedName() string {
	if _, constant := constants[p.current().text]; constant {
		p.unexpected("a name")
	}
	return p.name()
}

// target parses what is assigned to; attributes tells whether attributes of
// namespaces may be. It ends before a name of end.
func (p *parser) target(attributes bool, end ...string) *target {
	defer p.enter()()
	t := &target{line: p.currentLine()}
	for len(t.parts) == 0 || !p.tupleEnd(end) {
		t.parts = append(t.parts, p.targetPart(attributes))
		if !p.skipIf(",") {
			break
		}
		t.tuple = true
	}
	if !t.tuple {
		return t.parts[0]
	}
	return t
}

func (p *parser) targetPart(attributes bool) *target {
	if p.skipIf("(") {
		inner := p.target(attributes)
		p.expect(")")
		return inner
	}
	t := &target{line: p.currentLine(), name: p.storedName()}
	if attributes && p.skipIf(".") {
		t.attribute = p.name()
	}
	return t
}
