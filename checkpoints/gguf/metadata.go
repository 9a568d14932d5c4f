package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/checkpoints"
)

// kind is the type of a metadata value, by its number in the file.
type kind uint32

const (
	boolKind   kind = 7
	stringKind kind = 8
	arrayKind  kind = 9
)

var kinds = [...]struct {
	name  string
	bytes int // of a value; 0: they differ
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

func (k kind) String() string { return kinds[k].name }

// value is a metadata value: n elements of a kind as they stand in the file, which are checked.
type value struct {
	kind  kind
	array bool
	n     int
	data  []byte
}

func (v value) String() string {
	if v.array {
		return fmt.Sprintf("an array of %d values of type %v", v.n, v.kind)
	}
	return "a value of type " + v.kind.String()
}

// metadata reads the pairs.
func (p *part) metadata(r *reader, n int) {
	p.values = make(map[string]value, min(n, 1024))
	for range n {
		begin := r.at
		key := r.string("key")
		if r.err != nil {
			return
		}
		v := r.readValue(key)
		if r.err != nil {
			return
		}
		r.at, begin = begin, r.at // errors about the key are about where it begins
		switch _, twice := p.values[key]; {
		case key == "":
			r.keepError("an empty key")
		case !utf8.ValidString(key):
			r.keepError("key %.200q, want valid UTF-8", key)
		case twice:
			r.keepError("key %.200q is there twice", key)
		}
		r.at = begin
		p.values[key] = v
		p.keys = append(p.keys, key)
	}
}

// readValue reads and checks the value of a key.
func (r *reader) readValue(key string) value {
	v := value{kind: r.readKind(key), n: 1}
	if v.kind == arrayKind {
		v.array, v.kind = true, r.readKind(key)
		if r.err == nil && v.kind == arrayKind {
			r.keepError("key %.200q: an array of arrays, want one of numbers, bools or strings", key)
		}
		least := 8 // a string's length
		if r.err == nil && v.kind != stringKind {
			least = kinds[v.kind].bytes
		}
		v.n = r.readCount(fmt.Sprintf("values of key %.200q", key), least)
	}
	begin := r.at
	switch what := fmt.Sprintf("value of key %.200q", key); {
	case r.err != nil:
		return v
	case v.kind == stringKind:
		length := "length of " + what
		for i := 0; i < v.n && r.err == nil; i++ {
			r.takeBytes(r.uint64(length), what)
		}
	default:
		r.takeBytes(uint64(v.n)*uint64(kinds[v.kind].bytes), what)
	}
	if r.err != nil {
		return v
	}
	v.data = r.data[begin:r.at]
	if v.kind == boolKind {
		if i := slices.IndexFunc(v.data, func(b byte) bool { return b > 1 }); i >= 0 {
			r.at = begin + i
			r.keepError("key %.200q: bool of value %d, want 0 or 1", key, v.data[i])
		}
	}
	return v
}

func (r *reader) readKind(key string) kind {
	k := r.uint32(fmt.Sprintf("type of key %.200q", key))
	if k >= uint32(len(kinds)) {
		r.keepError("key %.200q: type %d, want one from 0 to %d", key, k, len(kinds)-1)
		return 0
	}
	return kind(k)
}

// Keys returns the keys of the metadata in the order of the file; of a split model its first
// file's.
func (f *File) Keys() []string { return slices.Clone(f.parts[0].keys) }

// Kind is the type of a key's value, as "uint32" or "array of string"; "" where there is none.
func (f *File) Kind(key string) string {
	v, ok := f.parts[0].values[key]
	switch {
	case !ok:
		return ""
	case v.array:
		return "array of " + v.kind.String()
	}
	return v.kind.String()
}

// The following return the value of a key. ok is false where the file has no such key; a value of
// another type is checkpoints.ErrCorrupt.

// String returns a string.
func (f *File) String(key string) (s string, ok bool, err error) {
	return one(f.parts[0], key, "a string", decodeString)
}

// Bool returns a bool.
func (f *File) Bool(key string) (b bool, ok bool, err error) {
	return one(f.parts[0], key, "a bool", decodeBool)
}

// Int returns an integer of any width.
func (f *File) Int(key string) (n int64, ok bool, err error) {
	return f.parts[0].int(key)
}

func (p *part) int(key string) (n int64, ok bool, err error) {
	return one(p, key, "an integer below 2^63", decodeInt)
}

// Float returns a float32, exactly, or a float64.
func (f *File) Float(key string) (x float64, ok bool, err error) {
	return one(f.parts[0], key, "a float", decodeFloat)
}

// Strings returns an array of strings.
func (f *File) Strings(key string) (all []string, ok bool, err error) {
	return many(f.parts[0], key, "an array of strings", decodeString)
}

// Bools returns an array of bools.
func (f *File) Bools(key string) (all []bool, ok bool, err error) {
	return many(f.parts[0], key, "an array of bools", decodeBool)
}

// Ints returns an array of integers of any width.
func (f *File) Ints(key string) (all []int64, ok bool, err error) {
	return many(f.parts[0], key, "an array of integers below 2^63", decodeInt)
}

// Floats returns an array of float32, exactly, or float64.
func (f *File) Floats(key string) (all []float64, ok bool, err error) {
	return many(f.parts[0], key, "an array of floats", decodeFloat)
}

func one[T any](p *part, key, want string, decode func(kind, []byte) (T, int, bool)) (x T, ok bool, err error) {
	v, ok := p.values[key]
	if !ok {
		return x, false, nil
	}
	if !v.array {
		if x, _, ok := decode(v.kind, v.data); ok {
			return x, true, nil
		}
	}
	return x, true, checkpoints.Corruptf("%s: key %.200q: %v, want %s", p.name, key, v, want)
}

func many[T any](p *part, key, want string, decode func(kind, []byte) (T, int, bool)) (all []T, ok bool, err error) {
	v, ok := p.values[key]
	if !ok {
		return nil, false, nil
	}
	fits := v.array
	if fits && v.n == 0 { // of the right type?
		_, _, fits = decode(v.kind, make([]byte, 8))
	}
	all = make([]T, 0, v.n)
	for data := v.data; fits && len(all) < v.n; {
		var x T
		var n int
		if x, n, fits = decode(v.kind, data); fits {
			all, data = append(all, x), data[n:]
		}
	}
	if !fits {
		return nil, true, checkpoints.Corruptf("%s: key %.200q: %v, want %s", p.name, key, v, want)
	}
	return all, true, nil
}

// Decoders return the value at the start of data and its bytes; ok is false for another kind.

func decodeString(k kind, data []byte) (s string, n int, ok bool) {
	if k != stringKind {
		return "", 0, false
	}
	n = 8 + int(binary.LittleEndian.Uint64(data))
	return string(data[8:n]), n, true
}

func decodeBool(k kind, data []byte) (b bool, n int, ok bool) { return data[0] == 1, 1, k == boolKind }

func decodeInt(k kind, data []byte) (x int64, n int, ok bool) {
	var wide [8]byte
	n = copy(wide[:], data[:kinds[k].bytes])
	switch u := binary.LittleEndian.Uint64(wide[:]); {
	case strings.HasPrefix(k.String(), "uint"):
		return int64(u), n, u <= math.MaxInt64
	case strings.HasPrefix(k.String(), "int"):
		unused := 64 - 8*n
		return int64(u<<unused) >> unused, n, true
	}
	return 0, 0, false
}

func decodeFloat(k kind, data []byte) (x float64, n int, ok bool) {
	switch k.String() {
	case "float32":
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data))), 4, true
	case "float64":
		return math.Float64frombits(binary.LittleEndian.Uint64(data)), 8, true
	}
	return 0, 0, false
}
