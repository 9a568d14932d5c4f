package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Object is a JSON object that keeps the order of its keys, which templates
// print.
type Object []Member

// Member is a key of an Object and its value: nil, bool, a string, a number,
// []any, Object or map[string]any (sorted by key).
type Member struct {
	Key   string
	Value any
}

// Get returns the value of the last member with the key.
func (o Object) Get(key string) (any, bool) {
	for _, m := range slices.Backward(o) {
		if m.Key == key {
			return m.Value, true
		}
	}
	return nil, false
}

// UnmarshalJSON reads a JSON object.
func (o *Object) UnmarshalJSON(data []byte) error {
	v, err := ParseJSON(data)
	if err != nil {
		return err
	}
	object, ok := v.(Object)
	if !ok && v != nil {
		return fmt.Errorf("chat: JSON %s, want an object", kindName(v))
	}
	*o = object
	return nil
}

// UnmarshalJSON reads a message of the usual form, {"role": …, "content": …, …}.
func (m *Message) UnmarshalJSON(data []byte) error {
	var o Object
	if err := o.UnmarshalJSON(data); err != nil {
		return err
	}
	return m.fromObject(o)
}

func (m *Message) fromObject(o Object) error {
	role, _ := o.Get("role")
	name, ok := role.(string)
	if !ok {
		return fmt.Errorf("chat: message: role is %s, want a string", kindName(role))
	}
	*m = Message{Role: name}
	content, _ := o.Get("content")
	text, plain := content.(string)
	m.Content = text
	for _, e := range o {
		if e.Key == "role" || e.Key == "content" && plain {
			continue
		}
		m.Extra = append(m.Extra, e)
	}
	return nil
}

// ParseJSON reads one JSON value; objects become Objects, arrays []any, numbers
// int64 or float64.
func ParseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("chat: JSON at byte %d: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("chat: JSON at byte %d: more data after the value", d.InputOffset())
	}
	return v, nil
}

var errDepth = fmt.Errorf("nested more than %d deep", maxDepth)

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	t, err := d.Token()
	if err == io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return parseNumber(t)
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := parseValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		object := Object{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			object = append(object, Member{key.(string), v})
		}
		_, err := d.Token()
		return object, err
	}
	return t, nil // nil, bool or string
}

func parseNumber(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s: out of range", n)
	}
	return f, nil
}

func kindName(v any) string {
	switch v.(type) {
	case nil:
		return "missing or null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	case Object:
		return "an object"
	}
	return "a number"
}

// list is a list as templates see it. gonja asks it for its items, so that a
// negative index reaches every element (gonja's own misses the first).
type list []any

// GetItem implements exec.ItemGetter.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

var _ exec.ItemGetter = list(nil)

// toTemplate turns data into what gonja works on.
func toTemplate(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	switch v := v.(type) {
	case nil, bool, string, int, float64:
		return v, nil
	case json.Number:
		n, err := parseNumber(v)
		if err != nil {
			return nil, err
		}
		return toTemplate(n, depth)
	case Object:
		// gonja takes an empty *exec.Dict for true.
		if len(v) == 0 {
			return map[string]any{}, nil
		}
		dict := exec.NewDict()
		at := make(map[string]int, len(v))
		for _, m := range v {
			value, err := toTemplate(m.Value, depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.Key, err)
			}
			if i, ok := at[m.Key]; ok { // as in Python the last value counts, at the first place
				dict.Pairs[i].Value = exec.AsValue(value)
				continue
			}
			at[m.Key] = len(dict.Pairs)
			dict.Pairs = append(dict.Pairs, &exec.Pair{Key: exec.AsValue(m.Key), Value: exec.AsValue(value)})
		}
		return dict, nil
	case map[string]any:
		object := make(Object, 0, len(v))
		for key, value := range v {
			object = append(object, Member{key, value})
		}
		slices.SortFunc(object, func(a, b Member) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
		return toTemplate(object, depth)
	}
	r := reflect.ValueOf(v)
	switch {
	case r.CanInt():
		return int(r.Int()), nil
	case r.CanUint():
		if r.Uint() > math.MaxInt {
			return nil, fmt.Errorf("number %d is out of range", r.Uint())
		}
		return int(r.Uint()), nil
	case r.CanFloat():
		return r.Float(), nil
	case r.Kind() == reflect.Slice:
		out := make(list, r.Len())
		for i := range out {
			item, err := toTemplate(r.Index(i).Interface(), depth+1)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			out[i] = item
		}
		return out, nil
	}
	return nil, errors.New("values of type " + r.Type().String() + " are not supported")
}

// toList makes a list of what a gonja function returned.
func toList(items []string) list {
	l := make(list, len(items))
	for i, s := range items {
		l[i] = s
	}
	return l
}

// members returns the keys and values of a dict in order; ok is false for
// everything else. Keys of a map, which namespace() makes, are sorted.
func members(v *exec.Value) (pairs []*exec.Pair, ok bool) {
	if v.IsNil() || !v.IsDict() {
		return nil, false
	}
	switch d := v.Interface().(type) {
	case *exec.Dict:
		return d.Pairs, true
	case exec.Dict:
		return d.Pairs, true
	}
	for _, key := range v.Keys() {
		if value, found := v.GetItem(key.String()); found {
			pairs = append(pairs, &exec.Pair{Key: key, Value: value})
		}
	}
	return pairs, true
}
