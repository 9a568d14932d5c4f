package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
)

// Object is a JSON object that keeps the order of its keys, which templates
// print.
type Object []Member

// Member is a key of an Object and its value.
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

// MarshalJSON writes the members in their order.
func (o Object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(m.Key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.Value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads a JSON object, or null.
func (o *Object) UnmarshalJSON(data []byte) error {
	v, err := ParseJSON(data)
	if err != nil {
		return err
	}
	object, ok := v.(Object)
	if !ok && v != nil {
		return fmt.Errorf("found JSON of another kind, want an object")
	}
	*o = object
	return nil
}

// maxData is how deep data may be nested.
const maxData = 64

// ParseJSON reads one JSON value; objects become Objects, arrays []any, numbers
// int64 or float64, whole numbers beyond int64 *big.Int.
func ParseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("JSON at byte %d: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("JSON at byte %d: more data after the value", d.InputOffset())
	}
	return v, nil
}

var errDepth = fmt.Errorf("nested more than %d deep", maxData)

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxData {
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
	if whole := !strings.ContainsAny(n.String(), ".eE"); whole && len(n) <= maxDigits {
		if i, ok := new(big.Int).SetString(n.String(), 10); ok {
			return i, nil
		}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s: out of range", n)
	}
	return f, nil
}
