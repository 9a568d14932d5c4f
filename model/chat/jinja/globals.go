package jinja

import (
	"strings"
	"time"
)

// globals are the functions that every template sees.
func globals(now time.Time) *scope {
	s := &scope{}
	for name, call := range map[string]func(r *run, a *arguments) value{
		"raise_exception": raise, "range": makeRange, "dict": makeDict, "namespace": makeNamespace, "joiner": makeJoiner,
	} {
		s.setName(name, &function{name, call})
	}
	for _, name := range []string{"cycler", "lipsum"} {
		s.setName(name, &function{name, func(r *run, _ *arguments) value { return r.failWith("the function is not supported") }})
	}
	if !now.IsZero() {
		s.setName("strftime_now", &function{"strftime_now", func(r *run, a *arguments) value {
			return r.strftime(now, r.stringArg(a.bindParameters(r, "format")[0]))
		}})
	}
	return s
}

func raise(r *run, a *arguments) value {
	if s := r.str(a.bindParameters(r, "message")[0]); r.err == nil {
		r.err = &RaisedError{s}
	}
	return nil
}

func makeRange(r *run, a *arguments) value {
	if len(a.names) > 0 || len(a.args) < 1 || len(a.args) > 3 {
		return r.failWith("found %d arguments, want 1 to 3 without a name", len(a.args)+len(a.names))
	}
	var n [3]int
	for i, v := range a.args {
		if n[i] = r.intArg(v, 0); n[i] > 1<<48 || n[i] < -1<<48 {
			return r.failWith("found a number of more than 48 bits")
		}
	}
	start, stop, step := 0, n[0], 1
	if len(a.args) > 1 {
		start, stop = n[0], n[1]
	}
	if len(a.args) > 2 {
		step = n[2]
	}
	if step == 0 {
		return r.failWith("found the step 0")
	}
	count := steps(start, stop, step)
	if count > maxRange {
		return r.failWith("more than %d elements", maxRange)
	}
	if !r.chargeItems(count) {
		return nil
	}
	items := make([]value, count)
	for i := range items {
		items[i] = int64(start + i*step)
	}
	return &list{kindRange, items}
}

// steps is how many steps from start stay before stop.
func steps(start, stop, step int) int {
	if step < 0 {
		start, stop, step = stop, start, -step
	}
	return max(stop-start+step-1, 0) / step
}

// dictArgs is dict(…): of another dict or of pairs, and of arguments by name.
func (r *run) dictArgs(a *arguments) *dict {
	d := newDict(len(a.names))
	if len(a.args) > 1 {
		r.failWith("found %d arguments, want at most one without a name", len(a.args))
	} else if len(a.args) == 1 {
		v := a.args[0]
		if from, ok := v.(*dict); ok {
			v = &list{kindItems, from.pairs(r)}
		} else if u, ok := v.(*undefined); ok {
			u.failUse(r)
		}
		for _, item := range r.iterate(v) {
			if pair := r.unpack(item, 2); pair != nil {
				d.setItem(r, pair[0], pair[1])
			}
		}
	}
	for i, name := range a.names {
		d.setItem(r, name, a.named[i])
	}
	return d
}

func makeDict(r *run, a *arguments) value { return r.dictArgs(a) }

func makeNamespace(r *run, a *arguments) value { return &namespace{r.dictArgs(a)} }

// makeJoiner is a function that gives nothing at first, and then the separator.
func makeJoiner(r *run, a *arguments) value {
	separator, used := a.bindParameters(r, "sep?")[0], false
	if !given(separator) {
		separator = ", "
	}
	return &function{"joiner", func(r *run, a *arguments) value {
		a.bindParameters(r)
		if !used {
			used = true
			return ""
		}
		return separator
	}}
}

// directives of strftime, as layouts of Go's; those with a leading zero have a form without.
var directives = map[byte]string{
	'%': "%", 'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
	'd': "02", 'e': "_2", 'm': "01", 'Y': "2006", 'y': "06", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'j': "002",
}

// strftime formats a time as Python does.
func (r *run) strftime(t time.Time, format string) value {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start, short := i, strings.HasPrefix(format[i:], "%-")
		if i++; short {
			i++
		}
		layout, ok := "", i < len(format)
		if ok {
			layout, ok = directives[format[i]]
		}
		if ok = ok && (!short || strings.IndexByte("dmHIMSj", format[i]) >= 0); !ok {
			return r.failWith("the directive %s is not supported", quoted(format[start:min(i+1, len(format))]))
		}
		text := t.Format(layout)
		if short {
			text = strings.TrimLeft(text[:len(text)-1], "0") + text[len(text)-1:]
		}
		b.WriteString(text)
	}
	r.charge(b.Len())
	return b.String()
}
