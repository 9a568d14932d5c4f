package checkpoints

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/kernels"
)

func runState() *State {
	return &State{
		Tensors: map[string]StateTensor{
			"param.embeddings": {Shape: []int{2, 3}, F32: []float32{1, -2, math.SmallestNonzeroFloat32, math.MaxFloat32, float32(math.Inf(1)), float32(math.Copysign(0, -1))}},
			"moment.embeddings": {Shape: []int{3}, F64: []float64{math.Pi, math.SmallestNonzeroFloat64,
				math.Float64frombits(0x7ff8dead_beef0001)}},
			"scalar": {Shape: []int{}, F64: []float64{7}},
			"empty":  {Shape: []int{0}, F32: []float32{}},
			"nan":    {Shape: []int{1}, F32: []float32{math.Float32frombits(0xffc12345)}},
		},
		Run: json.RawMessage(`{"step":12,"rng":"AQID","seed":18446744073709551615,"isa":"avx2"}`),
	}
}

func sameState(t *testing.T, got, want *State) {
	t.Helper()
	if string(got.Run) != string(want.Run) || len(got.Tensors) != len(want.Tensors) {
		t.Fatalf("got run %s and %d tensors, want %s and %d", got.Run, len(got.Tensors), want.Run, len(want.Tensors))
	}
	for name, w := range want.Tensors {
		g, ok := got.Tensors[name]
		if !ok || len(g.F32) != len(w.F32) || len(g.F64) != len(w.F64) || (g.F32 == nil) != (w.F32 == nil) || len(g.Shape) != len(w.Shape) {
			t.Fatalf("tensor %s: got %+v, want %+v", name, g, w)
		}
		for i := range w.Shape {
			if g.Shape[i] != w.Shape[i] {
				t.Fatalf("tensor %s: shape %v, want %v", name, g.Shape, w.Shape)
			}
		}
		for i := range w.F32 {
			if math.Float32bits(g.F32[i]) != math.Float32bits(w.F32[i]) {
				t.Fatalf("tensor %s[%d]: bits %x, want %x", name, i, math.Float32bits(g.F32[i]), math.Float32bits(w.F32[i]))
			}
		}
		for i := range w.F64 {
			if math.Float64bits(g.F64[i]) != math.Float64bits(w.F64[i]) {
				t.Fatalf("tensor %s[%d]: bits %x, want %x", name, i, math.Float64bits(g.F64[i]), math.Float64bits(w.F64[i]))
			}
		}
	}
}

func TestStateRoundTrip(t *testing.T) {
	for name, s := range map[string]*State{
		"full": runState(),
		"bare": {Run: json.RawMessage(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.safetensors")
			var first []byte
			for range 2 { // the second time replaces the file, with the same bytes
				if err := SaveState(path, s); err != nil {
					t.Fatal(err)
				}
				got, err := ReadState(path)
				if err != nil {
					t.Fatal(err)
				}
				sameState(t, got, s)
				data, err := os.ReadFile(path)
				if err != nil || first != nil && !bytes.Equal(first, data) {
					t.Fatalf("the same state gave other bytes (%v)", err)
				}
				first = data
			}
		})
	}
}

func readStateBytes(data []byte) error {
	file, err := ParseSafetensors("state", data)
	if err != nil {
		return err
	}
	_, err = decodeState(file)
	return err
}

func TestStateDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.safetensors")
	if err := SaveState(path, runState()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := readStateBytes(data); err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(data) {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := readStateBytes(flipped); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("bit %d of byte %d flipped: %v", bit%8, bit/8, err)
		}
	}
	for cut := range len(data) {
		if err := readStateBytes(data[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d of %d bytes: %v", cut, len(data), err)
		}
	}
	header := 8 + binary.LittleEndian.Uint64(data)
	data[header] ^= 1
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = ReadState(path)
	wantErrorIs(t, err, ErrCorrupt, "read run state "+path+": digest: got ")
	wantError(t, err, "the file is damaged")
}

func TestReadStateRefuses(t *testing.T) {
	write := func(tensors []TensorView, metadata map[string]string) []byte {
		var b bytes.Buffer
		if err := WriteSafetensors(&b, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		data := b.Bytes()
		if at := 8 + len(sealedStart); bytes.HasPrefix(data[8:], []byte(sealedStart+noDigest)) {
			copy(data[at:], digestWithout(data, at))
		}
		return data
	}
	meta := func(key, value string) map[string]string {
		m := map[string]string{"digest": noDigest, "format": stateFormat, "run": "{}", "version": "1"}
		m[key] = value
		return m
	}
	bf16 := []TensorView{{Name: "a", DType: kernels.BF16, Shape: []int{1}, Data: []byte("xx")}}
	for name, c := range map[string]struct {
		data []byte
		is   error
		want string
	}{
		"model file":     {write(bf16, nil), ErrCorrupt, `format: got "", want "glimpse-run-state"`},
		"newer version":  {write(nil, meta("version", "2")), ErrVersion, "unknown format version: got 2, want 1"},
		"broken version": {write(nil, meta("version", "one")), ErrCorrupt, `version: got "one", want a number`},
		"no digest":      {write(nil, meta("digest", "")), ErrCorrupt, "does not start with a digest"},
		"run not object": {write(nil, meta("run", "[]")), ErrCorrupt, `run: got "[]", want a JSON object`},
		"run broken":     {write(nil, meta("run", "{")), ErrCorrupt, `run: not valid JSON`},
		"other dtype":    {write(bf16, meta("run", "{}")), ErrCorrupt, `tensor "a": got BF16, want F32 or F64`},
	} {
		t.Run(name, func(t *testing.T) { wantErrorIs(t, readStateBytes(c.data), c.is, c.want) })
	}
	_, err := ReadState(filepath.Join(t.TempDir(), "missing"))
	wantErrorIs(t, err, fs.ErrNotExist, "read run state")
}

func TestSaveStateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		state State
		want  string
	}{
		"run not JSON":    {State{Run: json.RawMessage("{")}, "run: not valid JSON"},
		"no numbers":      {State{Tensors: map[string]StateTensor{"a": {}}}, `tensor "a": want exactly one of F32 and F64`},
		"both precisions": {State{Tensors: map[string]StateTensor{"a": {F32: []float32{1}, F64: []float64{1}}}}, "want exactly one"},
		"wrong shape":     {State{Tensors: map[string]StateTensor{"a": {Shape: []int{2}, F32: []float32{1}}}}, `tensor "a": 4 bytes of data, want 8 for F32 [2]`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state")
			if err := SaveState(path, runState()); err != nil {
				t.Fatal(err)
			}
			wantError(t, SaveState(path, &c.state), c.want)
			got, err := ReadState(path)
			if err != nil {
				t.Fatal(err)
			}
			sameState(t, got, runState())
			if left := readNames(t, dir); len(left) != 1 {
				t.Fatalf("left behind: %v", left)
			}
		})
	}
}

func BenchmarkState(b *testing.B) {
	const n = 4 << 20
	s := &State{Tensors: map[string]StateTensor{}}
	for _, name := range strings.Fields("param first second") {
		s.Tensors[name] = StateTensor{Shape: []int{n}, F32: make([]float32, n)}
	}
	path := filepath.Join(b.TempDir(), "state")
	b.Run("write", func(b *testing.B) {
		b.SetBytes(3 * 4 * n)
		for b.Loop() {
			if err := SaveState(path, s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(3 * 4 * n)
		for b.Loop() {
			if _, err := ReadState(path); err != nil {
				b.Fatal(err)
			}
		}
	})
}
