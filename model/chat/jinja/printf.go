package jinja

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

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
	spare := false // Python takes all that can be indexed for a mapping, which may have more
	switch args.(type) {
	case *dict, *list, *rangeValue, *undefined:
		spare = !tuple
	}
	used := 0
	take := func() (value, error) {
		if used >= len(items) {
			return nil, errors.New("found too few arguments for the format")
		}
		used++
		return items[used-1], nil
	}
	var b strings.Builder
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
	}
	if used < len(items) && !spare {
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
