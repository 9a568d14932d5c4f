package jinja

import (
	"errors"
	"fmt"
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
