package checkpoints

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"glimpse/kernels"
)

// rawFile puts a header, as it stands, before the data.
func rawFile(header, data string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+data...)
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error: %v\nwant one that says: %s", err, want)
	}
}

func wantErrorIs(t *testing.T, err, sentinel error, want string) {
	t.Helper()
	wantError(t, err, want)
	if !errors.Is(err, sentinel) {
		t.Fatalf("error %v is not %v", err, sentinel)
	}
}

// hostileFiles are malformed safetensors files and what their error says. They
// also seed the fuzz test.
func hostileFiles() map[string]struct {
	file []byte
	want string
} {
	type hostile = struct {
		file []byte
		want string
	}
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	one := func(tensor, data string) []byte { return rawFile(`{"t":`+tensor+`}`, data) }
	return map[string]hostile{
		"empty file":              {nil, "file of 0 bytes, want at least 8"},
		"seven bytes":             {make([]byte, 7), "file of 7 bytes, want at least 8"},
		"empty header":            {length(0, ""), `header starts with "", want '{'`},
		"header beyond file":      {length(3, "{}"), "header of 3 bytes, but only 2 bytes follow: the file is truncated"},
		"header beyond limit":     {length(100_000_001, "{}"), "header of 100000001 bytes, want at most 100000000"},
		"header length overflows": {length(math.MaxUint64, "{}"), "header of 18446744073709551615 bytes, want at most"},
		"header not an object":    {rawFile(`[]`, ""), `header starts with "[]", want '{'`},
		"leading space":           {rawFile(` {}`, ""), `header starts with " {}", want '{'`},
		"byte order mark":         {rawFile("\ufeff{}", ""), `want '{'`},
		"not UTF-8":               {rawFile("{\"\xff\":1}", ""), "header is not valid UTF-8"},
		"unfinished object":       {rawFile(`{"a":{`, ""), "not valid JSON"},
		"missing comma":           {rawFile(`{"__metadata__":{} "t":{}}`, ""), "not valid JSON"},
		"trailing comma":          {rawFile(`{"__metadata__":{},}`, ""), "not valid JSON"},
		"text after object":       {rawFile(`{} {}`, ""), "follows the header's object, want only spaces"},
		"newline after object":    {rawFile("{}\n", ""), "follows the header's object, want only spaces"},
		"zero after object":       {rawFile("{}\x00", ""), "follows the header's object, want only spaces"},
		"metadata not object":     {rawFile(`{"__metadata__":[]}`, ""), `__metadata__: got "[", want "{"`},
		"metadata number":         {rawFile(`{"__metadata__":{"a":1}}`, ""), `__metadata__: got "1", want a string`},
		"metadata null":           {rawFile(`{"__metadata__":{"a":null}}`, ""), `__metadata__: got "null", want a string`},
		"metadata duplicate key":  {rawFile(`{"__metadata__":{"a":"1","a":"1"}}`, ""), `__metadata__: duplicate key "a"`},
		"metadata twice":          {rawFile(`{"__metadata__":{},"__metadata__":{}}`, ""), `duplicate key "__metadata__"`},
		"duplicate tensor": {
			rawFile(`{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, ""),
			`duplicate tensor "t"`},
		"duplicate tensor, escaped": {
			rawFile(`{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0074":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, ""),
			`duplicate tensor "t"`},
		"tensor not object":    {one(`3`, ""), `tensor "t": got "3", want "{"`},
		"tensor null":          {one(`null`, ""), `tensor "t": got "null", want "{"`},
		"no dtype":             {one(`{"shape":[],"data_offsets":[0,1]}`, "x"), `tensor "t": missing key, want all of: dtype, shape, data_offsets`},
		"no shape":             {one(`{"dtype":"U8","data_offsets":[0,1]}`, "x"), `missing key`},
		"no offsets":           {one(`{"dtype":"U8","shape":[]}`, ""), `missing key`},
		"dtype in other case":  {one(`{"Dtype":"U8","shape":[],"data_offsets":[0,1]}`, "x"), `tensor "t": unknown key "Dtype"`},
		"unknown key":          {one(`{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}`, "x"), `unknown key "x", want one of: dtype, shape, data_offsets`},
		"duplicate dtype":      {one(`{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}`, "x"), `tensor "t": duplicate key "dtype"`},
		"duplicate shape":      {one(`{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}`, "x"), `duplicate key "shape"`},
		"duplicate offsets":    {one(`{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}`, "x"), `duplicate key "data_offsets"`},
		"unknown dtype":        {one(`{"dtype":"F31","shape":[],"data_offsets":[0,4]}`, "xxxx"), `tensor "t": unknown dtype "F31"`},
		"dtype lower case":     {one(`{"dtype":"f32","shape":[],"data_offsets":[0,4]}`, "xxxx"), `tensor "t": unknown dtype "f32"`},
		"dtype number":         {one(`{"dtype":1,"shape":[],"data_offsets":[0,4]}`, "xxxx"), `tensor "t": got "1", want a string`},
		"shape not array":      {one(`{"dtype":"U8","shape":1,"data_offsets":[0,1]}`, "x"), `tensor "t": shape: got "1", want "["`},
		"shape negative":       {one(`{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}`, "x"), `shape: got "-1", want an integer from 0 to`},
		"shape minus zero":     {one(`{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}`, ""), `shape: got "-0", want an integer`},
		"shape fraction":       {one(`{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}`, "x"), `shape: got "1.0", want an integer`},
		"shape exponent":       {one(`{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}`, "x"), `shape: got "1e0", want an integer`},
		"shape string":         {one(`{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}`, "x"), `want an integer`},
		"shape nested":         {one(`{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}`, "x"), `want an integer`},
		"shape of rank 65":     {one(`{"dtype":"U8","shape":[`+strings.Repeat("1,", 64)+`1],"data_offsets":[0,1]}`, "x"), `tensor "t": shape: more than 64 numbers`},
		"shape beyond 64 bits": {one(`{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}`, "x"), `want an integer`},
		"shape product overflows": {
			one(`{"dtype":"U8","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,1]}`, "x"), `number of elements of shape [4294967296 4294967296 4294967296] overflows`},
		"shape overflows before zero": {
			one(`{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}`, ""), `number of elements of shape [4294967296 4294967296 0] overflows`},
		"byte count overflows": {
			one(`{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}`, ""), `number of bytes of F64 [4611686018427387904] overflows`},
		"packed type leaves bits": {one(`{"dtype":"F4","shape":[3],"data_offsets":[0,2]}`, "xx"), `F4 [3] does not fill whole bytes`},
		"one offset":              {one(`{"dtype":"U8","shape":[1],"data_offsets":[0]}`, "x"), `tensor "t": data_offsets with 1 numbers, want 2`},
		"three offsets":           {one(`{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}`, "x"), `data_offsets with 3 numbers, want 2`},
		"offsets reversed":        {one(`{"dtype":"U8","shape":[1],"data_offsets":[1,0]}`, "x"), `data_offsets [1, 0], want a length of 1 for U8 [1]`},
		"offsets too long":        {one(`{"dtype":"F32","shape":[2],"data_offsets":[0,12]}`, "xxxxxxxxxxxx"), `tensor "t": data_offsets [0, 12], want a length of 8 for F32 [2]`},
		"offsets too short":       {one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`, "xxxx"), `data_offsets [0, 4], want a length of 8`},
		"hole at start":           {one(`{"dtype":"U8","shape":[1],"data_offsets":[1,2]}`, "xx"), `tensor "t": begins at 1, want 0: a hole before the first tensor`},
		"data without tensor":     {rawFile(`{}`, "x"), "tensors end at byte 0 of the data, want 1: bytes follow the last tensor"},
		"bytes at end":            {one(`{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`, "xx"), "tensors end at byte 1 of the data, want 2: bytes follow the last tensor"},
		"data truncated":          {one(`{"dtype":"U8","shape":[3],"data_offsets":[0,3]}`, "xx"), "tensors end at byte 3 of the data, want 2: the file is truncated"},
		"hole between": {
			rawFile(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "xxx"),
			`tensor "b": begins at 2, want 1: a hole after tensor "a"`},
		"overlap": {
			rawFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, "xxx"),
			`tensor "b": begins at 1, want 2: an overlap after tensor "a"`},
		"same bytes twice": {
			rawFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, "xx"),
			`tensor "b": begins at 0, want 2: an overlap after tensor "a"`},
		"empty tensor inside another": {
			rawFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, "xx"),
			`tensor "b": begins at 1, want 2: an overlap after tensor "a"`},
		"empty tensor beyond end": {
			rawFile(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[9,9]}}`, ""), `tensor "a": begins at 9, want 0`},
	}
}

func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range hostileFiles() {
		t.Run(name, func(t *testing.T) {
			_, err := ParseSafetensors("bad.safetensors", c.file)
			wantErrorIs(t, err, ErrCorrupt, c.want)
			if !strings.HasPrefix(err.Error(), "bad.safetensors: ") {
				t.Fatalf("error does not start with the file: %v", err)
			}
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "_"))
			if err := os.WriteFile(path, c.file, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err = OpenSafetensors(path)
			wantErrorIs(t, err, ErrCorrupt, c.want)
		})
	}
}

func TestUnusualFilesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		file  []byte
		names string
	}{
		"no tensors":              {rawFile(`{}`, ""), "[]"},
		"trailing spaces":         {rawFile(`{}      `, ""), "[]"},
		"empty metadata":          {rawFile(`{"__metadata__":{}}`, ""), "[]"},
		"spaces inside":           {rawFile("{ \"a\" :\n{\"dtype\":\"U8\", \"shape\":[ 1 ],\"data_offsets\":[0, 1]}}", "x"), "[a]"},
		"scalar":                  {rawFile(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, "xxxx"), "[a]"},
		"empty tensors":           {rawFile(`{"a":{"dtype":"F32","shape":[0,5],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, "x"), "[a b c]"},
		"unaligned":               {rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`, "x\x00\x00\x80\x3f"), "[a b]"},
		"packed":                  {rawFile(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[1,4]}}`, "xxxx"), "[a b]"},
		"keys in any order":       {rawFile(`{"a":{"data_offsets":[0,1],"shape":[1],"dtype":"BOOL"}}`, "x"), "[a]"},
		"names differing in case": {rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"A":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xx"), "[A a]"},
		"empty name":              {rawFile(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "x"), "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSafetensors(name, c.file)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(s.Names()); got != c.names {
				t.Fatalf("names %s, want %s", got, c.names)
			}
		})
	}
	s, err := ParseSafetensors("unaligned", rawFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`, "x\x00\x00\x80\x3f"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Tensor("b")
	got := make([]float32, 1)
	if err != nil || b.ReadF32(got) != nil || got[0] != 1 {
		t.Fatalf("unaligned tensor: %v, %v, want 1", got, err)
	}
}

// A reader must not allocate what a header merely claims.
func TestAllocationIsBounded(t *testing.T) {
	big := func(n int, entry string) []byte {
		return rawFile("{"+strings.TrimSuffix(strings.Repeat(entry, n), ",")+"}", "")
	}
	for name, file := range map[string][]byte{
		"header length in a short file": append(binary.LittleEndian.AppendUint64(nil, maxHeader), '{'),
		"huge shape":                    rawFile(`{"t":{"dtype":"F64","shape":[1000000,1000000],"data_offsets":[0,8000000000000]}}`, ""),
		"long shape":                    rawFile(`{"t":{"dtype":"U8","shape":[`+strings.TrimSuffix(strings.Repeat("0,", 200_000), ",")+`],"data_offsets":[0,0]}}`, ""),
		"long name":                     rawFile(`{"`+strings.Repeat("n", 300_000)+`":{"dtype":"U8"}}`, ""),
		"deep nesting":                  rawFile(`{"t":`+strings.Repeat("[", 300_000), ""),
		"same key often":                big(20_000, `"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`),
		"metadata":                      rawFile(`{"__metadata__":{"`+strings.Repeat(`\u0000`, 50_000)+`":"x"}}`, ""),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = ParseSafetensors("x", file) })
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

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	dtypes := []kernels.DType{kernels.F64, kernels.F32, kernels.BF16, kernels.F16, kernels.I32}
	for round := range 30 {
		var tensors []TensorView
		for i := range rng.IntN(12) {
			shape := make([]int, rng.IntN(4))
			n := 1
			for d := range shape {
				shape[d] = rng.IntN(5)
				n *= shape[d]
			}
			dtype := dtypes[rng.IntN(len(dtypes))]
			data := make([]byte, n*dtype.Size())
			for j := range data {
				data[j] = byte(rng.Uint32())
			}
			tensors = append(tensors, TensorView{Name: fmt.Sprintf("t%d <é\"\\&>\u2028", i), DType: dtype, Shape: shape, Data: data})
		}
		var metadata map[string]string
		if round%3 > 0 {
			metadata = map[string]string{"format": "pt", "a\n": "<\x00>"}
		}
		var file bytes.Buffer
		if err := WriteSafetensors(&file, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		// The order of the arguments must not show.
		rng.Shuffle(len(tensors), func(i, j int) { tensors[i], tensors[j] = tensors[j], tensors[i] })
		path := filepath.Join(t.TempDir(), "x.safetensors")
		if err := WriteSafetensorsFile(path, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, file.Bytes()) {
			t.Fatalf("bytes depend on the order of the arguments (%v)", err)
		}
		s, err := OpenSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s.Metadata(), metadata) || len(s.Names()) != len(tensors) {
			t.Fatalf("metadata %v, %d tensors; want %v, %d", s.Metadata(), len(s.Names()), metadata, len(tensors))
		}
		if header := binary.LittleEndian.Uint64(s.file); header%8 != 0 {
			t.Fatalf("header of %d bytes, want a multiple of 8", header)
		}
		for _, want := range tensors {
			got, err := s.Tensor(want.Name)
			if err != nil || got.DType != want.DType || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) || !bytes.Equal(got.Data, want.Data) {
				t.Fatalf("tensor %q: got %v (%v), want %v", want.Name, got, err, want)
			}
			if begin := s.tensors[want.Name].begin; begin%want.DType.Size() != 0 {
				t.Fatalf("tensor %q of %s begins at %d", want.Name, want.DType, begin)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if len(tensors) > 0 {
			_, err = s.Tensor(tensors[0].Name)
			wantErrorIs(t, err, fs.ErrClosed, "already closed")
		}
	}
}

// The exact bytes: changing them changes the hash of every exported adapter.
func TestWriterBytes(t *testing.T) {
	var b bytes.Buffer
	err := WriteSafetensors(&b, []TensorView{
		{Name: "b", DType: kernels.BF16, Shape: []int{1}, Data: []byte("bb")},
		F32Tensor("a", []int{1, 2}, []float32{1, -2}),
		F64Tensor("z", nil, []float64{1}),
	}, map[string]string{"k": "v", "format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"format":"pt","k":"v"},` +
		`"z":{"dtype":"F64","shape":[],"data_offsets":[0,8]},` +
		`"a":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},` +
		`"b":{"dtype":"BF16","shape":[1],"data_offsets":[16,18]}} `
	want := string(rawFile(header+strings.Repeat(" ", 7-(len(header)-1)%8), "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x80\x3f\x00\x00\x00\xc0bb"))
	if b.String() != want {
		t.Fatalf("got  %q\nwant %q", b.String(), want)
	}
}

func TestWriterRefuses(t *testing.T) {
	good := F32Tensor("a", []int{1}, []float32{1})
	for name, c := range map[string]struct {
		tensors  []TensorView
		metadata map[string]string
		want     string
	}{
		"same name twice":    {[]TensorView{good, good}, nil, `tensor "a": given twice`},
		"metadata as tensor": {[]TensorView{{Name: "__metadata__", DType: kernels.F32, Data: make([]byte, 4)}}, nil, "name not allowed"},
		"name not UTF-8":     {[]TensorView{{Name: "\xff", DType: kernels.F32, Data: make([]byte, 4)}}, nil, "name not allowed"},
		"dtype of groups":    {[]TensorView{{Name: "a", DType: kernels.KIVIKeys}}, nil, `tensor "a": unknown dtype "KIVI4-K"`},
		"dtype out of range": {[]TensorView{{Name: "a", DType: 200}}, nil, `tensor "a": unknown dtype "DType(200)"`},
		"negative dimension": {[]TensorView{{Name: "a", DType: kernels.F32, Shape: []int{-1}}}, nil, "shape [-1] overflows"},
		"rank 65":            {[]TensorView{{Name: "a", DType: kernels.F32, Shape: make([]int, 65)}}, nil, `tensor "a": rank 65, want at most 64`},
		"data too short":     {[]TensorView{{Name: "a", DType: kernels.F32, Shape: []int{2}, Data: make([]byte, 4)}}, nil, `tensor "a": 4 bytes of data, want 8 for F32 [2]`},
		"metadata not UTF-8": {nil, map[string]string{"k": "\xff"}, `metadata "k": not valid UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			wantError(t, WriteSafetensors(&b, c.tensors, c.metadata), c.want)
			if b.Len() > 0 {
				t.Fatalf("%d bytes were written before the error", b.Len())
			}
			path := filepath.Join(t.TempDir(), "x")
			wantError(t, WriteSafetensorsFile(path, c.tensors, c.metadata), c.want)
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("a file is there after the error: %v", err)
			}
		})
	}
}

func TestTensorErrors(t *testing.T) {
	s, err := ParseSafetensors("m.safetensors", rawFile(
		`{"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"w":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}}`, "xxxxxxxxxxxx"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Tensor("nope")
	wantErrorIs(t, err, ErrNoTensor, `m.safetensors: tensor "nope": no such tensor`)
	_, err = s.Tensor("ids")
	wantErrorIs(t, err, ErrDType, `m.safetensors: tensor "ids": unsupported dtype "I64", want one of: F64, F32, BF16, F16, I32`)
	if info, ok := s.Info("ids"); !ok || info.DType != "I64" || info.Bytes != 8 || fmt.Sprint(info.Shape) != "[1]" {
		t.Fatalf("Info(ids) = %+v, %v", info, ok)
	}
	if _, ok := s.Info("nope"); ok {
		t.Fatal("Info(nope) is there")
	}
	w, err := s.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	wantErrorIs(t, w.ReadF32(make([]float32, 1)), ErrDType, `read tensor "w" as floats: unsupported dtype I32`)
	wantError(t, w.ReadF32(make([]float32, 2)), `destination of 2 elements, want 1`)

	_, err = OpenSafetensors(t.TempDir())
	wantError(t, err, "a folder, want a regular file")
	_, err = OpenSafetensors(filepath.Join(t.TempDir(), "missing"))
	wantErrorIs(t, err, fs.ErrNotExist, "open safetensors")
}

func TestReadF32(t *testing.T) {
	for name, c := range map[string]struct {
		dtype kernels.DType
		data  string
		want  []float32
	}{
		"F32":  {kernels.F32, "\x00\x00\x80\x3f\x00\x00\x80\x7f", []float32{1, float32(math.Inf(1))}},
		"BF16": {kernels.BF16, "\x80\x3f\x00\xc0", []float32{1, -2}},
		"F16":  {kernels.F16, "\x00\x3c\x01\x00\xff\x7b", []float32{1, 0x1p-24, 65504}},
		"F64":  {kernels.F64, "\x00\x00\x00\x00\x00\x00\xf0\x3f\x9a\x99\x99\x99\x99\x99\xb9\x3f", []float32{1, 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, len(c.want))
			if err := (TensorView{DType: c.dtype, Data: []byte(c.data)}).ReadF32(got); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Fatalf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

// brokenWriter fails after some bytes, as a full disk does.
type brokenWriter struct{ left int }

func (w *brokenWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestWriterReportsBrokenWriter(t *testing.T) {
	tensor := F32Tensor("a", []int{1000}, make([]float32, 1000))
	for _, left := range []int{0, 10, 100, 4000} {
		if err := WriteSafetensors(&brokenWriter{left}, []TensorView{tensor}, nil); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("writer that takes %d bytes: error %v", left, err)
		}
	}
}
