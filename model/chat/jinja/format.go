package jinja

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// format is str.format.
func (r *run) format(s string, a *arguments) (string, error) {
	f := &formatter{run: r, args: a}
	return f.expand(s, 0)
}

type formatter struct {
	run  *run
	args *arguments
	next int // automatic numbers, -1 once there were others
}

func (f *formatter) expand(s string, depth int) (string, error) {
	if depth > 2 {
		return "", errors.New("found format fields nested too deep")
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '{' && c != '}' {
			b.WriteByte(c)
			continue
		}
		if i+1 < len(s) && s[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		if c == '}' {
			return "", errors.New(`found a single "}" in a format`)
		}
		end, open := i+1, 1
		for ; end < len(s); end++ {
			if s[end] == '{' {
				open++
			} else if s[end] == '}' {
				if open--; open == 0 {
					break
				}
			}
		}
		if open > 0 {
			return "", errors.New(`found a format field without an end, want "}"`)
		}
		text, err := f.field(s[i+1:end], depth)
		if err != nil {
			return "", err
		}
		if err := f.run.charge(len(text)); err != nil {
			return "", err
		}
		b.WriteString(text)
		i = end
	}
	return b.String(), f.run.charge(len(s))
}

// field writes one field: name[!conversion][:specification].
func (f *formatter) field(s string, depth int) (string, error) {
	if err := f.run.charge(callCost); err != nil {
		return "", err
	}
	name, spec, conversion := s, "", byte(0)
	brackets := 0
	for i := range len(s) {
		if s[i] == '[' {
			brackets++
		} else if s[i] == ']' {
			brackets--
		}
		if brackets > 0 || s[i] != '!' && s[i] != ':' {
			continue
		}
		name = s[:i]
		if s[i] == '!' {
			if i+1 >= len(s) || strings.IndexByte("rsa", s[i+1]) < 0 || i+2 < len(s) && s[i+2] != ':' {
				return "", fmt.Errorf("found the format field %s, want !r, !s or !a", quoted(s))
			}
			conversion = s[i+1]
			i += 2
		}
		if i < len(s) {
			spec = s[i+1:]
		}
		break
	}
	v, err := f.lookup(name)
	if err != nil {
		return "", err
	}
	switch conversion {
	case 'r', 'a':
		if v, err = f.run.repr(v); err == nil && conversion == 'a' {
			v = ascii(v.(string))
		}
	case 's':
		v, err = f.run.str(v)
	}
	if err != nil {
		return "", err
	}
	if spec, err = f.expand(spec, depth+1); err != nil {
		return "", err
	}
	if spec == "" {
		return f.run.str(v)
	}
	parsed, err := parseSpec(spec)
	if err != nil {
		return "", err
	}
	return f.run.formatted(v, parsed)
}

// lookup evaluates the name of a field: 0, name, 0.attribute or name[key].
func (f *formatter) lookup(name string) (value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	var v value
	number, err := strconv.Atoi(first)
	switch {
	case first == "":
		if f.next < 0 {
			return nil, errors.New("found fields with and without a number in a format, want one kind")
		}
		number = f.next
		f.next++
		fallthrough
	case err == nil:
		if first != "" {
			if f.next > 0 {
				return nil, errors.New("found fields with and without a number in a format, want one kind")
			}
			f.next = -1
		}
		if number >= len(f.args.args) {
			return nil, fmt.Errorf("found %d arguments, want one for the field %d of the format", len(f.args.args), number)
		}
		v = f.args.args[number]
	default:
		i := -1
		for k, n := range f.args.names {
			if n == first {
				i = k
			}
		}
		if i < 0 {
			return nil, fmt.Errorf("found no argument %s, which the format names", quoted(first))
		}
		v = f.args.named[i]
	}
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			if v, err = f.run.getAttr(v, rest[1:end]); err != nil {
				return nil, err
			}
			rest = rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			return nil, fmt.Errorf("found the format field %s, want name.attribute or name[key]", quoted(name))
		}
		var key value = rest[1:end]
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil {
			key = n
		}
		if v, err = f.run.getItem(v, key); err != nil {
			return nil, err
		}
		rest = rest[end+1:]
	}
	return v, nil
}

// ascii spells out what is not ASCII.
func ascii(s string) string {
	var b strings.Builder
	for _, c := range s {
		if c < 0x80 {
			b.WriteRune(c)
		} else {
			b.WriteString(spelledOut(c))
		}
	}
	return b.String()
}

// printf is format % args.
func (r *run) printf(format string, args value) (string, error) {
	var items []value
	tuple := false
	if l, ok := args.(*list); ok && l.tuple {
		items, tuple = l.items, true
	} else {
		items = []value{args}
	}
	mapping, _ := args.(*dict)
	used := 0
	take := func() (value, error) {
		if used >= len(items) {
			return nil, errors.New("found too few arguments for the format")
		}
		used++
		return items[used-1], nil
	}
	var b strings.Builder
	byName := false
	for rest := format; rest != ""; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		if strings.HasPrefix(rest[i+1:], "%") {
			b.WriteByte('%')
			rest = rest[i+2:]
			continue
		}
		d := &directive{rest: rest[i+1:], take: take}
		if err := d.parse(r, mapping); err != nil {
			return "", err
		}
		text, err := d.text(r)
		if err != nil {
			return "", err
		}
		if err := r.charge(len(text) + callCost); err != nil {
			return "", err
		}
		b.WriteString(text)
		rest = d.rest
		byName = byName || d.byName
	}
	if used < len(items) && !byName && (tuple || mapping == nil) {
		return "", errors.New("found more arguments than the format takes")
	}
	return b.String(), r.charge(len(format))
}

// directive is one % of a format.
type directive struct {
	rest   string
	take   func() (value, error)
	spec   formatSpec
	zero   bool
	byName bool
	named  value
}

func (d *directive) next(set string) byte {
	if d.rest == "" || strings.IndexByte(set, d.rest[0]) < 0 {
		return 0
	}
	c := d.rest[0]
	d.rest = d.rest[1:]
	return c
}

func (d *directive) parse(r *run, mapping *dict) (err error) {
	d.spec = formatSpec{fill: " ", precision: -1}
	if d.next("(") != 0 {
		end := strings.IndexByte(d.rest, ')')
		if end < 0 || mapping == nil {
			return errors.New("found %(name) in a format, want a dict to take it from")
		}
		v, found, err := mapping.get(r, d.rest[:end])
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("found no key %s, which the format names", quoted(d.rest[:end]))
		}
		d.named, d.byName, d.rest = v, true, d.rest[end+1:]
	}
	for {
		switch c := d.next("#0- +"); c {
		case '#':
			d.spec.alternate = true
		case '0':
			d.zero = true
		case '-':
			d.spec.align = '<'
		case ' ':
			if d.spec.sign != '+' {
				d.spec.sign = c
			}
		case '+':
			d.spec.sign = c
		default:
			if d.spec.width, err = d.number(); err != nil {
				return err
			}
			if d.spec.width < 0 {
				d.spec.align, d.spec.width = '<', -d.spec.width
			}
			if d.next(".") != 0 {
				if d.spec.precision, err = d.number(); err != nil {
					return err
				}
				d.spec.precision = max(d.spec.precision, 0)
			}
			d.next("hlL")
			return nil
		}
	}
}

// number is a width or precision: digits, or an argument for a star.
func (d *directive) number() (n int, err error) {
	if d.next("*") != 0 {
		v, err := d.take()
		if err != nil {
			return 0, err
		}
		return intArg("*", v, 0)
	}
	n, d.rest, err = leadingNumber(d.rest)
	return n, err
}

func (d *directive) text(r *run) (string, error) {
	kind := d.next("diouxXeEfFgGcrsa")
	if kind == 0 {
		return "", errors.New("found a format directive that Python does not have")
	}
	v := d.named
	if !d.byName {
		var err error
		if v, err = d.take(); err != nil {
			return "", err
		}
	}
	f := d.spec
	if f.align == 0 {
		f.align = '>'
	}
	switch kind {
	case 'r', 's', 'a':
		s, err := r.str(v)
		if kind != 's' {
			s, err = r.repr(v)
		}
		if err != nil {
			return "", err
		}
		if kind == 'a' {
			s = ascii(s)
		}
		f.sign, f.alternate = 0, false
		return r.formatted(s, f)
	case 'c':
		f.sign, f.alternate, f.precision = 0, false, -1
		if s, ok := text(v); ok {
			return r.formatted(s, f)
		}
		f.kind = 'c'
		return r.formatted(v, f)
	}
	if d.zero && d.spec.align == 0 {
		f.fill, f.align = "0", '='
	}
	if strings.IndexByte("eEfFgG", kind) >= 0 {
		x, ok := asFloat(v)
		if !ok {
			return "", fmt.Errorf("found a value of type %s for %%%c, want a number", typeName(v), kind)
		}
		f.kind = kind
		return r.formatted(x, f)
	}
	return r.printfInt(kind, v, f)
}

func (r *run) printfInt(kind byte, v value, f formatSpec) (string, error) {
	if x, ok := v.(float64); ok && (kind == 'd' || kind == 'i' || kind == 'u') {
		i, _ := big.NewFloat(x).Int(nil)
		v = integer(i)
	}
	i, ok := asBig(v)
	if !ok {
		return "", fmt.Errorf("found a value of type %s for %%%c, want a number", typeName(v), kind)
	}
	if kind == 'i' || kind == 'u' {
		kind = 'd'
	}
	f.kind = kind
	digits := f.precision
	f.precision = -1
	if digits < 0 {
		return r.formatted(v, f)
	}
	// That many digits, with zeros in front, and then filled up.
	inner := formatSpec{fill: "0", align: '=', sign: f.sign, alternate: f.alternate, precision: -1, kind: kind, width: digits}
	if i.Sign() < 0 || f.sign != 0 {
		inner.width++
	}
	if f.alternate && kind != 'd' {
		inner.width += 2
	}
	s, err := r.formatted(v, inner)
	if err != nil {
		return "", err
	}
	head := s[:len(s)-len(strings.TrimLeft(s, "+- "))]
	return r.aligned(head, s[len(head):], formatSpec{fill: f.fill, align: f.align, width: f.width}, '>')
}
