package jinja

import (
	"errors"
	"fmt"
	"math/big"
	"time"
)

// globals are the functions that every template sees.
func globals(now time.Time) *scope {
	s := &scope{}
	for name, call := range map[string]func(r *run, a *arguments) (value, error){
		"raise_exception": raise, "range": makeRange, "dict": makeDict, "namespace": makeNamespace, "cycler": makeCycler, "joiner": makeJoiner,
	} {
		s.set(name, method(name, call))
	}
	if now.IsZero() {
		return s
	}
	s.set("strftime_now", method("strftime_now", func(r *run, a *arguments) (value, error) {
		args, err := a.bind("strftime_now", "format")
		if err != nil {
			return nil, err
		}
		format, err := stringArg("strftime_now", args[0])
		if err != nil {
			return nil, err
		}
		out := strftime(now, format)
		return out, r.charge(len(out))
	}))
	return s
}

func raise(r *run, a *arguments) (value, error) {
	args, err := a.bind("raise_exception", "message")
	if err != nil {
		return nil, err
	}
	s, err := r.str(args[0])
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{s}
}

func makeRange(_ *run, a *arguments) (value, error) {
	if len(a.names) > 0 || len(a.args) < 1 || len(a.args) > 3 {
		return nil, fmt.Errorf("range: found %d arguments, want 1 to 3 without a name", len(a.args)+len(a.names))
	}
	var n [3]*big.Int
	for i, v := range a.args {
		var ok bool
		if n[i], ok = asBig(v); !ok {
			return nil, fmt.Errorf("range: found an argument of type %s, want an integer", typeName(v))
		}
	}
	start, stop, step := new(big.Int), n[0], big.NewInt(1)
	if len(a.args) > 1 {
		start, stop = n[0], n[1]
	}
	if len(a.args) > 2 {
		step = n[2]
	}
	if step.Sign() == 0 {
		return nil, errors.New("range: found the step 0")
	}
	// ceil((stop - start) / step), in numbers of any size.
	count := new(big.Int).Sub(stop, start)
	count.Add(count, step)
	count.Sub(count, big.NewInt(int64(step.Sign())))
	count.Quo(count, step)
	if new(big.Int).Sub(stop, start).Sign() != step.Sign() {
		count = new(big.Int)
	}
	if !count.IsInt64() || count.Int64() > maxRange {
		return nil, fmt.Errorf("range: more than %d elements", maxRange)
	}
	for _, i := range []*big.Int{start, stop, step} {
		if i.BitLen() > 48 {
			return nil, errors.New("range: found a number of more than 48 bits")
		}
	}
	return &rangeValue{int(start.Int64()), int(stop.Int64()), int(step.Int64()), int(count.Int64())}, nil
}

// dictArgs is dict(…): of another dict or of pairs, and of arguments by name.
func (r *run) dictArgs(what string, a *arguments) (*dict, error) {
	if len(a.args) > 1 {
		return nil, fmt.Errorf("%s: found %d arguments, want at most one without a name", what, len(a.args))
	}
	d := newDict(len(a.names))
	if len(a.args) == 1 {
		var err error
		if d, err = r.dictOf(a.args[0]); err != nil {
			return nil, within(what, err)
		}
	}
	for i, name := range a.names {
		if err := d.set(r, name, a.named[i]); err != nil {
			return nil, err
		}
	}
	return d, r.charge(callCost)
}

func makeDict(r *run, a *arguments) (value, error) { return r.dictArgs("dict", a) }

func makeNamespace(r *run, a *arguments) (value, error) {
	d, err := r.dictArgs("namespace", a)
	return &namespace{d}, err
}

func makeCycler(_ *run, a *arguments) (value, error) {
	if len(a.args) == 0 || len(a.names) > 0 {
		return nil, errors.New("cycler: found no arguments, want at least one without a name")
	}
	return &cycler{items: a.args}, nil
}

func makeJoiner(_ *run, a *arguments) (value, error) {
	args, err := a.bind("joiner", "sep?")
	if err != nil {
		return nil, err
	}
	if !given(args[0]) {
		args[0] = ", "
	}
	return &joiner{separator: args[0]}, nil
}
