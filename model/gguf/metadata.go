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
	"glimpse/internal/listing"
)

// metadata are the keys of an architecture. What is wrong with them is gathered in err.
type metadata struct {
	file   *container.File
	prefix string          // of the architecture's keys: "llama."
	used   map[string]bool // keys that were asked for
	err    error
}

func (m *metadata) fail(format string, args ...any) {
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
		m.fail("key %q: got %d in layer 0 and %d in layer %d, want the same in all layers", key, layers[0], layers[different], different)
		return 0, false
	}
	if len(layers) == 0 {
		m.fail("key %q: got no values, want at least one", key)
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
		m.fail("key %q is missing", m.prefix+key)
	case ok && n < 1:
		m.fail("key %q: got %d, want at least 1", m.prefix+key, n)
	}
	return n
}

// number is a number as JSON writes it: a float32 in the shortest decimal that gives it.
func (m *metadata) number(key string) (n json.Number, ok bool) {
	x, ok := value(m, m.prefix+key, m.file.Float)
	if ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		m.fail("key %q: got %v, want a finite number", m.prefix+key, x)
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

// neutral are keys of any architecture that change nothing, or change nothing if they have one of
// these values.
var neutral = map[string][]string{
	"tensor_data_layout": nil, "rope.scaling.finetuned": {"true", "false"}, // what was done to the weights before
	"expert_count": {"0"}, "expert_used_count": {"0"}, "nextn_predict_layers": {"0"},
	"attention.causal": {"true"}, "pooling_type": {"0"}, "use_parallel_residual": {"true"},
	"attention.sliding_window": {"0"}, "attention.max_alibi_bias": {"0"}, "attention.clamp_kqv": {"0"},
	"attn_logit_softcapping": {"0"}, "final_logit_softcapping": {"0"},
	"rope.scaling.attn_factor": {"1"}, "rope.scaling.yarn_ext_factor": {"1", "-1"}, "rope.scaling.alpha": {"0"},
	"rope.scaling.yarn_beta_fast": nil, "rope.scaling.yarn_beta_slow": nil, // which count where the scaling is YaRN
}

// done is an error about all keys of the architecture that nobody asked for and that could change
// what the model computes.
func (m *metadata) done(arch *architecture) error {
	var errs []error
	for _, key := range m.file.Keys() {
		own, ok := strings.CutPrefix(key, m.prefix)
		if !ok || m.used[key] {
			continue
		}
		values, known := neutral[own]
		got := m.text(key)
		switch {
		case known && (values == nil || slices.Contains(values, got)):
		case known:
			errs = append(errs, fmt.Errorf("key %q: got %.60s, want %s of %s", key, got, strings.Join(values, " or "), arch.class))
		default:
			errs = append(errs, fmt.Errorf("key %q: unknown of %s, got %.60s, which could change what the model computes", key, arch.class, got))
		}
	}
	return errors.Join(m.err, listing.Join(errs))
}

// text writes the value of a key.
func (m *metadata) text(key string) string {
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
