package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"glimpse/checkpoints"
)

// builder writes files, also malformed ones.
type builder struct {
	version        uint32
	tensors, pairs int
	body, data     []byte
}

func (b *builder) add(values ...any) *builder { b.body = appendAll(b.body, values...); return b }

// appendAll appends numbers little-endian, and strings after their lengths.
func appendAll(to []byte, values ...any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			to = append(binary.LittleEndian.AppendUint64(to, uint64(len(v))), v...)
		default:
			var err error
			if to, err = binary.Append(to, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	return to
}

// pair adds a pair of metadata.
func (b *builder) pair(key string, kind uint32, value ...any) *builder {
	b.pairs++
	return b.add(key, kind).add(value...)
}

// tensor adds the description of a tensor.
func (b *builder) tensor(name string, number uint32, offset uint64, dims ...uint64) *builder {
	b.tensors++
	return b.add(name, uint32(len(dims)), dims, number, offset)
}

// bytes is the file: the data come after padding to 32.
func (b *builder) bytes() []byte {
	version := b.version
	if version == 0 {
		version = 3
	}
	file := appendAll([]byte("GGUF"), version, uint64(b.tensors), uint64(b.pairs), b.body)
	if b.data != nil {
		file = append(file, make([]byte, padded(uint64(len(file)), 32)-uint64(len(file)))...)
	}
	return append(file, b.data...)
}

func newBuilder() *builder { return &builder{} }

// with gives the file n bytes of data.
func (b *builder) with(n int) []byte { b.data = make([]byte, n); return b.bytes() }

type hostile struct {
	file []byte
	is   error
	want string
}

// hostileFiles are malformed files and what their error says. They also seed the fuzz test.
func hostileFiles() map[string]hostile {
	corrupt := func(file []byte, want string) hostile { return hostile{file, checkpoints.ErrCorrupt, want} }
	version := func(file []byte, want string) hostile { return hostile{file, checkpoints.ErrVersion, want} }
	n := newBuilder
	whole := n().pair("a", 8, "text").pair("b", 9, uint32(4), uint64(2), uint32(1), uint32(2)).tensor("t", 0, 0, 4).with(16)
	return map[string]hostile{
		"empty":            corrupt(nil, `offset 0: begins with "", want "GGUF"`),
		"other magic":      corrupt([]byte("PK\x03\x04zip"), `begins with "PK\x03\x04", want "GGUF"`),
		"Git LFS":          corrupt([]byte("version https://git-lfs.github.com/spec/v1\noid"), "a Git LFS pointer, not the file itself"),
		"page":             corrupt([]byte("<!DOCTYPE html>"), "an HTML page"),
		"before GGUF":      version([]byte("tjgg\x03\x00\x00\x00"), "a file of llama.cpp from before GGUF, want GGUF of version 2 or 3"),
		"no version":       corrupt([]byte("GGUF\x03\x00"), "offset 4: version of 4 bytes, but only 2 follow: the file is truncated"),
		"version 0":        version([]byte("GGUF\x00\x00\x00\x00"), "unknown format version 0, want 2 or 3"),
		"version 1":        version((&builder{version: 1}).bytes(), "unknown format version 1, want 2 or 3"),
		"version 4":        version((&builder{version: 4}).bytes(), "unknown format version 4, want 2 or 3"),
		"big endian":       version([]byte("GGUF\x00\x00\x00\x03"), "a big-endian file, want a little-endian one"),
		"no counts":        corrupt([]byte("GGUF\x03\x00\x00\x00"), "number of tensors of 8 bytes, but only 0 follow"),
		"tensors claimed":  corrupt((&builder{tensors: math.MaxInt}).bytes(), "offset 16: 9223372036854775807 tensors, but the 8 bytes that follow hold at most 0"),
		"pairs claimed":    corrupt((&builder{pairs: 1}).bytes(), "offset 24: 1 pairs of metadata, but the 0 bytes that follow hold at most 0"),
		"truncated":        corrupt(whole[:len(whole)-1], `tensor "t": offset 0 of 16 bytes, but the file has 15 after its description: it is truncated`),
		"truncated, early": corrupt(whole[:100], "the file is truncated"),

		"key longer than the file": corrupt((&builder{pairs: 1}).add(uint64(math.MaxUint64), "abcdefgh").bytes(), "offset 32: key of 18446744073709551615 bytes, but only 16 follow"),
		"key empty":                corrupt(n().pair("", 7, byte(1)).bytes(), "offset 24: an empty key"),
		"key not UTF-8":            corrupt(n().pair("\xff", 7, byte(1)).bytes(), `key "\xff", want valid UTF-8`),
		"key twice":                corrupt(n().pair("a", 7, byte(1)).pair("a", 7, byte(1)).bytes(), `offset 38: key "a" is there twice`),
		"kind 13":                  corrupt(n().pair("a", 13, uint64(1)).bytes(), `key "a": type 13, want one from 0 to 12`),
		"bool 2":                   corrupt(n().pair("a", 7, byte(2)).bytes(), `offset 37: key "a": bool of value 2, want 0 or 1`),
		"bool 2 in an array":       corrupt(n().pair("a", 9, uint32(7), uint64(3), []byte{0, 1, 2}).bytes(), `offset 51: key "a": bool of value 2`),
		"value missing":            corrupt(n().pair("a", 4).bytes(), `the file is truncated`),
		"string claimed":           corrupt(n().pair("a", 8, uint64(1<<40)).bytes(), `value of key "a" of 1099511627776 bytes, but only 0 follow`),
		"array claimed":            corrupt(n().pair("a", 9, uint32(4), uint64(1<<62)).bytes(), `4611686018427387904 values of key "a", but the 0 bytes that follow hold at most 0`),
		"array of strings claimed": corrupt(n().pair("a", 9, uint32(8), uint64(3), "x", "y").bytes(), `3 values of key "a", but the 18 bytes that follow hold at most 2`),
		"string in array claimed":  corrupt(n().pair("a", 9, uint32(8), uint64(2), "x", uint64(9)).bytes(), `value of key "a" of 9 bytes, but only 0 follow`),
		"array of arrays":          corrupt(n().pair("a", 9, uint32(9), uint64(1), uint32(4), uint64(0)).bytes(), `key "a": an array of arrays, want one of numbers, bools or strings`),
		"array of kind 99":         corrupt(n().pair("a", 9, uint32(99), uint64(0)).bytes(), `key "a": type 99, want one from`),

		"alignment 0":       corrupt(n().pair("general.alignment", 4, uint32(0)).bytes(), `key "general.alignment": 0, want a power of two of at most 1048576`),
		"alignment 24":      corrupt(n().pair("general.alignment", 4, uint32(24)).bytes(), `key "general.alignment": 24, want a power of two`),
		"alignment 2 MiB":   corrupt(n().pair("general.alignment", 4, uint32(2<<20)).bytes(), `key "general.alignment": 2097152, want a power of two`),
		"alignment -32":     corrupt(n().pair("general.alignment", 5, int32(-32)).bytes(), `key "general.alignment": -32, want a power of two`),
		"alignment by text": corrupt(n().pair("general.alignment", 8, "32").bytes(), `key "general.alignment": a value of type string, want an integer`),

		"tensor twice":         corrupt(n().tensor("t", 0, 0, 8).tensor("t", 0, 32, 8).with(64), `tensor "t" is there twice`),
		"tensor not UTF-8":     corrupt(n().tensor("\xff", 0, 0, 8).with(32), `tensor "\xff", want a name in valid UTF-8`),
		"rank 5":               corrupt(n().tensor("t", 0, 0, 1, 1, 1, 1, 1).with(4), `tensor "t": rank 5, want at most 4`),
		"rank claimed":         corrupt((&builder{tensors: 1}).add("t", uint32(math.MaxUint32), uint64(0), uint64(0)).bytes(), `tensor "t": rank 4294967295, want at most 4`),
		"elements overflow":    corrupt(n().tensor("t", 0, 0, 1<<32, 1<<32).with(4), `tensor "t": number of elements of dimensions [4294967296 4294967296] overflows`),
		"dimension beyond int": corrupt(n().tensor("t", 0, 0, 1<<63).with(4), `number of elements of dimensions [9223372036854775808] overflows`),
		"bytes overflow":       corrupt(n().tensor("t", 0, 0, 1<<62).with(4), `tensor "t": number of bytes of F32 [4611686018427387904] overflows`),
		"type 99":              corrupt(n().tensor("t", 99, 0, 32).with(32), `tensor "t": type 99 is unknown, want one of: BF16, F16, F32, IQ4_NL`),
		"type given up":        corrupt(n().tensor("t", 31, 0, 32).with(32), `tensor "t": type Q4_0_4_4 was given up by llama.cpp, want one of: BF16`),
		"blocks across rows":   corrupt(n().tensor("t", 12, 0, 128, 2).with(144), `tensor "t": rows of 128 elements, want a multiple of the 256 of a block of Q4_K`),
		"scalar of a block":    corrupt(n().tensor("t", 8, 0).with(34), `rows of 1 elements, want a multiple of the 32 of a block of Q8_0`),
		"offset not aligned":   corrupt(n().tensor("t", 0, 16, 4).with(32), `tensor "t": offset 16, want a multiple of general.alignment 32`),
		"hole at the start":    corrupt(n().tensor("t", 0, 32, 4).with(48), `tensor "t": offset 32, want 0: a hole after the metadata`),
		"hole between":         corrupt(n().tensor("a", 0, 0, 4).tensor("b", 0, 64, 4).with(80), `tensor "b": offset 64, want 32: a hole after tensor "a"`),
		"overlap":              corrupt(n().tensor("a", 0, 0, 16).tensor("b", 0, 32, 4).with(64), `tensor "b": offset 32, want 64: an overlap with tensor "a"`),
		"same bytes twice":     corrupt(n().tensor("a", 0, 0, 4).tensor("b", 0, 0, 4).with(32), `tensor "b": offset 0, want 32: an overlap with tensor "a"`),
		"offset beyond int":    corrupt(n().tensor("t", 0, 1<<63, 4).with(16), `tensor "t": offset 9223372036854775808, want 0: a hole`),
		"data beyond the file": corrupt(n().tensor("t", 0, 0, 1<<40).with(16), `tensor "t": offset 0 of 4398046511104 bytes, but the file has 16`),
	}
}

func wantErrorIs(t *testing.T, err, sentinel error, want string) {
	t.Helper()
	if err == nil || !errors.Is(err, sentinel) || !strings.Contains(err.Error(), want) {
		t.Fatalf("error: %v\nwant one that is %v and says: %s", err, sentinel, want)
	}
}

func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range hostileFiles() {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("bad.gguf", c.file)
			wantErrorIs(t, err, c.is, c.want)
			if !strings.HasPrefix(err.Error(), "bad.gguf: ") {
				t.Fatalf("error does not start with the file: %v", err)
			}
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "_"))
			if err := os.WriteFile(path, c.file, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err = Open(path)
			wantErrorIs(t, err, c.is, "open GGUF: "+path+": ")
		})
	}
	_, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), "open GGUF: "+dir+": a folder, want a regular file") {
		t.Errorf("a folder: %v", err)
	}
}

func TestUnusualFilesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want string // names and shapes, then notes
	}{
		"nothing":                   {newBuilder().bytes(), ""},
		"nothing, padded":           {newBuilder().with(0), ""},
		"version 2":                 {(&builder{version: 2}).tensor("t", 0, 0, 2).with(8), "t[2] "},
		"last one padded":           {newBuilder().tensor("t", 0, 0, 2).with(32), "t[2] "},
		"scalar":                    {newBuilder().tensor("t", 0, 0).with(4), "t[] "},
		"dimensions reversed":       {newBuilder().tensor("t", 12, 0, 256, 3, 2).with(6 * 144), "t[2 3 256] "},
		"empty ones":                {newBuilder().tensor("a", 0, 0, 0).tensor("b", 0, 0, 4).tensor("c", 0, 32, 0, 5).with(32), "a[0] b[4] c[5 0] "},
		"out of order":              {newBuilder().tensor("b", 0, 32, 4).tensor("a", 0, 0, 4).with(48), "b[4] a[4] "},
		"a type that has no reader": {newBuilder().tensor("t", 16, 0, 256).with(66), "t[256] "},
		"bytes behind":              {newBuilder().tensor("t", 0, 0, 4).with(16 + 17), `t[4] bytes behind: 1 bytes follow tensor "t" at offset 96, which nothing reads`},
		"bytes behind no tensor":    {newBuilder().with(1), "bytes behind no tensor: 1 bytes follow the metadata at offset 32, which nothing reads"},
		"alignment 1":               {newBuilder().pair("general.alignment", 4, uint32(1)).add().tensor("a", 24, 0, 3).tensor("b", 24, 3, 2).bytes(), "!"},
	} {
		t.Run(name, func(t *testing.T) {
			file := c.file
			if c.want == "!" {
				file, c.want = append(file, 1, 2, 3, 4, 5), "a[3] b[2] "
			}
			f, err := Parse(name, file)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, tensor := range f.Tensors() {
				got += tensor.Name + fmt.Sprint(tensor.Shape) + " "
			}
			if got += strings.Join(f.Notes(), "\n"); got != c.want {
				t.Errorf("tensors and notes %s, want %s", got, c.want)
			}
		})
	}
}

// TestMetadata: every type, as gguf-py writes it (lab/golden/golden_gguf.py).
func TestMetadata(t *testing.T) {
	f, err := Open("testdata/all.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		key, kind string
		get       func(string) (any, bool, error)
		want      any
	}{
		{"general.architecture", "string", as(f.String), "llama"},
		{"u8", "uint8", as(f.Int), int64(200)},
		{"i8", "int8", as(f.Int), int64(-100)},
		{"u16", "uint16", as(f.Int), int64(60000)},
		{"i16", "int16", as(f.Int), int64(-30000)},
		{"u32", "uint32", as(f.Int), int64(4_000_000_000)},
		{"i32", "int32", as(f.Int), int64(-2_000_000_000)},
		{"u64", "uint64", as(f.Int), int64(1 << 62)},
		{"i64", "int64", as(f.Int), int64(-1 << 62)},
		{"f32", "float32", as(f.Float), float64(float32(1e-5))},
		{"f64", "float64", as(f.Float), 0.1},
		{"yes", "bool", as(f.Bool), true},
		{"no", "bool", as(f.Bool), false},
		{"text", "string", as(f.String), "Grüße\n"},
		{"ints", "array of int32", as(f.Ints), []int64{1, -2, 3}},
		{"floats", "array of float32", as(f.Floats), []float64{0.5, -1.5}},
		{"bools", "array of bool", as(f.Bools), []bool{true, false}},
		{"strings", "array of string", as(f.Strings), []string{"a", "", "日本"}},
	} {
		got, ok, err := c.get(c.key)
		if err != nil || !ok || !reflect.DeepEqual(got, c.want) || f.Kind(c.key) != c.kind {
			t.Errorf("%s: %v of %s (%v, %v), want %v of %s", c.key, got, f.Kind(c.key), ok, err, c.want, c.kind)
		}
		if _, ok, err := c.get("none"); ok || err != nil {
			t.Errorf("a key that is not there: %v, %v", ok, err)
		}
	}
	if keys := f.Keys(); len(keys) != 18 || keys[0] != "general.architecture" || keys[17] != "strings" || f.Kind("none") != "" {
		t.Errorf("keys %q", keys)
	}
}

func as[T any](get func(string) (T, bool, error)) func(string) (any, bool, error) {
	return func(key string) (any, bool, error) { return get(key) }
}

func TestMetadataOfAnotherType(t *testing.T) {
	f, err := Parse("m.gguf", newBuilder().pair("int", 4, uint32(1)).pair("text", 8, "1").pair("big", 10, uint64(1<<63)).pair("list", 9, uint32(4), uint64(1), uint32(7)).
		pair("none", 9, uint32(8), uint64(0)).pair("bigs", 9, uint32(10), uint64(2), uint64(1), uint64(1<<63)).pair("float", 6, float32(1)).bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		get  func(string) (any, bool, error)
		key  string
		want string
	}{
		{as(f.String), "int", "a value of type uint32, want a string"},
		{as(f.Int), "text", "a value of type string, want an integer"},
		{as(f.Int), "float", "a value of type float32, want an integer"},
		{as(f.Int), "big", "a value of type uint64, want an integer below 2^63"},
		{as(f.Int), "list", "an array of 1 values of type uint32, want an integer"},
		{as(f.Float), "int", "a value of type uint32, want a float"},
		{as(f.Bool), "int", "a value of type uint32, want a bool"},
		{as(f.Ints), "int", "a value of type uint32, want an array of integers"},
		{as(f.Strings), "list", "an array of 1 values of type uint32, want an array of strings"},
		{as(f.Ints), "none", "an array of 0 values of type string, want an array of integers"},
		{as(f.Ints), "bigs", "an array of 2 values of type uint64, want an array of integers below 2^63"},
		{as(f.Floats), "list", "an array of 1 values of type uint32, want an array of floats"},
		{as(f.Bools), "list", "an array of 1 values of type uint32, want an array of bools"},
	} {
		_, _, err := c.get(c.key)
		wantErrorIs(t, err, checkpoints.ErrCorrupt, fmt.Sprintf("m.gguf: key %q: %s", c.key, c.want))
	}
	if got, ok, err := f.Strings("none"); err != nil || !ok || len(got) != 0 {
		t.Errorf("an empty array: %v, %v, %v", got, ok, err)
	}
}

// A reader must not allocate what a file merely claims.
func TestAllocationIsBounded(t *testing.T) {
	pairs := newBuilder()
	for i := range 20_000 {
		pairs.pair(fmt.Sprint("k", i), 7, byte(1))
	}
	tensors := newBuilder()
	for i := range 20_000 {
		tensors.tensor(fmt.Sprint("t", i), 0, 0, 0)
	}
	for name, file := range map[string][]byte{
		"array in a short file":  newBuilder().pair("a", 9, uint32(0), uint64(1<<40)).bytes(),
		"string in a short file": newBuilder().pair("a", 8, uint64(1<<40)).bytes(),
		"many strings":           newBuilder().pair(strings.Repeat("\xff", 200), 9, uint32(8), uint64(50_000), make([]byte, 400_000)).bytes(),
		"many pairs":             pairs.bytes(),
		"many tensors":           tensors.bytes(),
		"long key":               newBuilder().pair(strings.Repeat("k", 300_000), 13).bytes(),
		"long name":              newBuilder().tensor(strings.Repeat("n", 300_000), 99, 0).bytes(),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = Parse("x", file) })
			if limit := allocationLimit(len(file)); got > limit {
				t.Errorf("%d bytes allocated for a file of %d, want at most %d (error: %.100v)", got, len(file), limit, err)
			}
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("error message of %d bytes", len(err.Error()))
			}
		})
	}
}

// allocationLimit is what reading n bytes may allocate in all, garbage included.
func allocationLimit(n int) uint64 { return 1<<18 + 64*uint64(n) }

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzParse checks that arbitrary bytes give a file that holds together, or an error, within the
// allocation that their size allows.
func FuzzParse(f *testing.F) {
	for _, c := range hostileFiles() {
		f.Add(c.file)
	}
	for _, name := range []string{"all.gguf", "split-00002-of-00003.gguf"} {
		file, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var file *File
		var err error
		if got := allocated(func() { file, err = Parse("x", data) }); got > allocationLimit(len(data)) {
			t.Fatalf("%d bytes allocated for %d bytes of input, want at most %d", got, len(data), allocationLimit(len(data)))
		}
		if err != nil {
			if !errors.Is(err, checkpoints.ErrCorrupt) && !errors.Is(err, checkpoints.ErrVersion) {
				t.Fatalf("error %v is neither ErrCorrupt nor ErrVersion", err)
			}
			return
		}
		for _, key := range file.Keys() {
			fits := 0
			for _, get := range []func(string) (any, bool, error){as(file.String), as(file.Bool), as(file.Int), as(file.Float), as(file.Strings), as(file.Bools), as(file.Ints), as(file.Floats)} {
				if _, ok, err := get(key); !ok {
					t.Fatalf("key %q is not there", key)
				} else if err == nil {
					fits++
				}
			}
			if kind := file.Kind(key); fits != 1 && !strings.HasSuffix(kind, "uint64") {
				t.Fatalf("key %q of type %s has values of %d types, want 1", key, kind, fits)
			}
		}
		sources, bytes := map[string]Source{}, 0
		for _, tensor := range file.Tensors() {
			sources["model."+tensor.Name] = Source{Tensor: tensor.Name}
			bytes += len(tensor.Data)
		}
		if bytes > len(data) {
			t.Fatalf("tensors of %d bytes in a file of %d", bytes, len(data))
		}
		w, err := file.Weights(sources)
		if err != nil {
			if !errors.Is(err, checkpoints.ErrDType) {
				t.Fatalf("weights: %v", err)
			}
			return
		}
		for _, name := range w.Names() {
			info, _ := w.Info(name)
			if v, err := w.Tensor(name); err != nil || len(v.Data) != info.Bytes {
				t.Fatalf("tensor %q: %d bytes (%v), want %d", name, len(v.Data), err, info.Bytes)
			}
		}
	})
}
