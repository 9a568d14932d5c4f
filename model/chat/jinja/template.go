package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"time"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	body []stmt
	own
	read  map[string]bool
	named map[string]bool
}

// Reads tells whether the template reads a variable of the name.
func (t *Template) Reads(name string) bool { return t.read[name] }

// Names tells whether the template has the name as that of a variable or attribute, or as a string.
// A key of an object that it does not name is read only where the whole object is printed.
func (t *Template) Names(name string) bool { return t.named[name] }

// Parse reads a template. An error names the line, what was found there and what is
// expected, or the limit that the source exceeds.
func Parse(source string) (*Template, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, read: map[string]bool{}}
	body := p.statements()
	if p.err != nil {
		return nil, p.err
	}
	named := map[string]bool{}
	for _, t := range tokens {
		switch t.kind {
		case kindName:
			named[t.text] = true
		case kindString:
			named[t.val.(string)] = true
		}
	}
	return &Template{body, newSymbols(nil).block(body), p.read, named}, nil
}

// Render returns what the template makes of variables: nil, bool, strings, numbers,
// *big.Int, slices, Object and map[string]any (sorted by key). now is what
// strftime_now tells; zero leaves it undefined. The error is a *RaisedError if the
// template called raise_exception, ErrBudget if it took too much, and ctx's if that
// ended it.
func (t *Template) Render(ctx context.Context, variables map[string]any, now time.Time) (string, error) {
	return t.renderInto(newRun(ctx), variables, now)
}

func (t *Template) renderInto(r *run, variables map[string]any, now time.Time) (string, error) {
	s := &scope{outer: globals(now)}
	in := &input{}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		v, err := in.value(variables[name], 0)
		if err != nil {
			return "", fmt.Errorf("variable %s: %w", quoted(name), err)
		}
		s.setName(name, v)
	}
	r.grow(in.size)
	if r.err = r.ctx.Err(); r.err == nil {
		r.block(t.body, r.enter(s, t.own))
	}
	if r.err != nil {
		return "", r.err
	}
	return r.out.String(), nil
}

// input turns Go's values into a template's, and counts their size.
type input struct {
	size int64
}

func (in *input) value(v any, depth int) (value, error) {
	if depth > maxData {
		return nil, fmt.Errorf("nested more than %d deep", maxData)
	}
	in.size += 4 * itemCost
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v, nil
	case *big.Int:
		if v.IsInt64() {
			return v.Int64(), nil
		}
		return v, nil
	case string:
		in.size += int64(len(v))
		return v, nil
	case json.Number:
		return parseNumber(v)
	case Object:
		return in.object(v, depth)
	case map[string]any:
		o := make(Object, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o = append(o, Member{key, v[key]})
		}
		return in.object(o, depth)
	}
	r := reflect.ValueOf(v)
	switch {
	case r.CanInt():
		return r.Int(), nil
	case r.CanUint():
		if u := r.Uint(); u > math.MaxInt64 {
			return new(big.Int).SetUint64(u), nil
		}
		return int64(r.Uint()), nil
	case r.CanFloat():
		return r.Float(), nil
	case r.Kind() == reflect.String:
		return in.value(r.String(), depth)
	case r.Kind() == reflect.Slice:
		items := make([]value, r.Len())
		for i := range items {
			item, err := in.value(r.Index(i).Interface(), depth+1)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			items[i] = item
		}
		return newList(items), nil
	}
	return nil, errors.New("values of type " + r.Type().String() + " are not supported")
}

// object makes a dict. As in Python the last of equal keys counts, at the place of
// the first.
func (in *input) object(o Object, depth int) (value, error) {
	d := newDict(len(o))
	for _, m := range o {
		in.size += int64(len(m.Key))
		v, err := in.value(m.Value, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Key, err)
		}
		if i, ok := d.index[m.Key]; ok {
			d.vals[i] = v
			continue
		}
		d.index[m.Key] = len(d.keys)
		d.keys, d.vals = append(d.keys, m.Key), append(d.vals, v)
	}
	return d, nil
}
