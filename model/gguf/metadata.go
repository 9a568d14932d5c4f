package gguf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	container "glimpse/checkpoints/gguf"
)

// metadata are the keys of an architecture. What is wrong with them is gathered in err.
type metadata struct {
	file   *container.File
	prefix string          // of the architecture's keys: "llama."
	used   map[string]bool // keys that were asked for
	notes  []string        // of odd values that are taken all the same
	err    error
}

func (m *metadata) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

func (m *metadata) reportFault(format string, args ...any) {
	m.err = errors.Join(m.err, fmt.Errorf(format, args...))
}

// value asks for a key; what get says is wrong is noted.
func value[T any](m *metadata, key string, get func(key string) (T, bool, error)) (v T, ok bool) {
	m.used[key] = true
	v, ok, err := get(key)
	if err != nil {
		m.err = errors.Join(m.err, err)
	}
	return v, ok && err == nil
}

// int is a whole number. One for each layer is one for all if they are equal.
func (m *metadata) int(key string) (n int, ok bool) {
	key = m.prefix + key
	if !strings.HasPrefix(m.file.Kind(key), "array") {
		n, ok := value(m, key, m.file.Int)
		return int(n), ok
	}
	layers, ok := value(m, key, m.file.Ints)
	if !ok {
		return 0, false
	}
	if different := slices.IndexFunc(layers, func(n int64) bool { return n != layers[0] }); different >= 0 {
		m.reportFault("key %q: got %d in layer 0 and %d in layer %d, want the same in all layers", key, layers[0], layers[different], different)
		return 0, false
	}
	if len(layers) == 0 {
		m.reportFault("key %q: got no values, want at least one", key)
		return 0, false
	}
	return int(layers[0]), true
}

// need is int for a key that must be there, and a positive number.
func (m *metadata) need(key string) int {
	before := m.err
	n, ok := m.int(key)
	switch {
	case !ok && m.err == before:
		m.reportFault("key %q is missing", m.prefix+key)
	case ok && n < 1:
		m.reportFault("key %q: got %d, want at least 1", m.prefix+key, n)
	}
	return n
}

// number is a number as JSON writes it: a float32 in the shortest decimal that gives it.
func (m *metadata) number(key string) (n json.Number, ok bool) {
	x, ok := value(m, m.prefix+key, m.file.Float)
	if ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		m.reportFault("key %q: got %v, want a finite number", m.prefix+key, x)
		return "", false
	}
	return decimal(x), ok
}

// numbers puts those numbers into c that there are, under the names there. Those that are 0 count where zero is set.
func (m *metadata) numbers(c map[string]any, zero bool, names map[string]string) {
	for from, to := range names {
		if n, ok := m.number(from); ok && (zero || !is(n, 0)) {
			c[to] = n
		}
	}
}

func decimal(x float64) json.Number {
	bits := 64
	if float64(float32(x)) == x {
		bits = 32
	}
	return json.Number(strconv.FormatFloat(x, 'g', -1, bits))
}

// is tells that a number has this value.
func is(n json.Number, value float64) bool {
	x, err := n.Float64()
	return err == nil && math.Abs(x-value) == 0
}

// textValue writes the value of a key.
func (m *metadata) textValue(key string) string {
	if n, ok, err := m.file.Int(key); ok && err == nil {
		return strconv.FormatInt(n, 10)
	}
	if x, ok, err := m.file.Float(key); ok && err == nil {
		return decimal(x).String()
	}
	if b, ok, err := m.file.Bool(key); ok && err == nil {
		return strconv.FormatBool(b)
	}
	if s, ok, err := m.file.String(key); ok && err == nil {
		return strconv.Quote(s)
	}
	return m.file.Kind(key)
}
