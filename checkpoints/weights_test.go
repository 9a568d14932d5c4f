package checkpoints

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func shardBytes(t testing.TB, names ...string) []byte {
	t.Helper()
	var tensors []TensorView
	for i, n := range names {
		tensors = append(tensors, F32Tensor(n, []int{1}, []float32{float32(i)}))
	}
	var b strings.Builder
	if err := WriteSafetensors(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return []byte(b.String())
}

func writeFiles(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func sharded(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"model-00001-of-00002.safetensors": shardBytes(t, "a", "c"),
		"model-00002-of-00002.safetensors": shardBytes(t, "b"),
		indexFile: []byte(`{"metadata":{"total_size":12},"weight_map":{
			"a":"model-00001-of-00002.safetensors",
			"b":"model-00002-of-00002.safetensors",
			"c":"model-00001-of-00002.safetensors"}}`),
	}
}

func mapFS(files map[string][]byte) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, data := range files {
		fsys[name] = &fstest.MapFile{Data: data}
	}
	return fsys
}

func TestOpenWeights(t *testing.T) {
	for name, files := range map[string]map[string][]byte{
		"single":  {"model.safetensors": shardBytes(t, "a", "b", "c")},
		"sharded": sharded(t),
		// transformers prefers the single file, too
		"single beside an index": {"model.safetensors": shardBytes(t, "a", "b", "c"), indexFile: []byte("broken")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, files)
			fromDir, err := OpenWeights(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer fromDir.Close()
			fromFS, err := OpenWeightsFS(mapFS(files), ".")
			if err != nil {
				t.Fatal(err)
			}
			all := sha256.New()
			var size int64
			read, err := WeightFiles(mapFS(files))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range read {
				all.Write(files[file])
				size += int64(len(files[file]))
			}
			for _, w := range []*Weights{fromDir, fromFS} {
				if got := w.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
					t.Fatalf("names %v", got)
				}
				for _, name := range w.Names() {
					v, err := w.Tensor(name)
					if err != nil || v.Name != name || v.Len() != 1 {
						t.Fatalf("tensor %s: %+v, %v", name, v, err)
					}
				}
				if info, ok := w.Info("b"); !ok || info.DType != "F32" {
					t.Fatalf("Info(b) = %+v, %v", info, ok)
				}
				_, err := w.Tensor("d")
				wantErrorIs(t, err, ErrNoTensor, `tensor "d": no such tensor`)
				var done, total int64
				sum, err := w.SHA256(t.Context(), func(d, n int64) { done, total = d, n })
				if want := fmt.Sprintf("%x", all.Sum(nil)); err != nil || sum != want {
					t.Fatalf("SHA256 = %s, %v; want that of the files one after the other, %s", sum, err, want)
				}
				if done != size || total != size || w.Bytes() != size {
					t.Fatalf("progress ended at %d of %d, Bytes() = %d, want %d", done, total, w.Bytes(), size)
				}
				again, err := w.SHA256(t.Context(), func(_, _ int64) { t.Error("hashed a second time") })
				if err != nil || again != sum {
					t.Fatalf("second SHA256 = %s, %v", again, err)
				}
			}
		})
	}
}

func TestWeightsSHA256IsCancelled(t *testing.T) {
	w, err := OpenWeightsFS(mapFS(sharded(t)), ".")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = w.SHA256(ctx, func(_, _ int64) { cancel() }) // after the first shard
	wantErrorIs(t, err, context.Canceled, "hash weights of .")
	if sum, err := w.SHA256(t.Context(), nil); err != nil || !isSHA256(sum) {
		t.Fatalf("after a cancelled call: %q, %v", sum, err)
	}
	w.Close()
	w.sha256 = ""
	_, err = w.SHA256(t.Context(), nil)
	wantErrorIs(t, err, fs.ErrClosed, "hash weights")
}

func TestHostileWeights(t *testing.T) {
	const s1, s2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	index := func(from, to string) func(map[string][]byte) {
		return func(files map[string][]byte) {
			old := string(files[indexFile])
			if files[indexFile] = []byte(strings.ReplaceAll(old, from, to)); old == string(files[indexFile]) {
				t.Fatalf("%q is not in the index", from)
			}
		}
	}
	whole := func(content string) func(map[string][]byte) {
		return func(files map[string][]byte) { files[indexFile] = []byte(content) }
	}
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		is     error
		want   string
	}{
		"empty folder": {func(f map[string][]byte) { clear(f) }, fs.ErrNotExist, "neither model.safetensors nor model.safetensors.index.json is there"},
		"only older format": {func(f map[string][]byte) { clear(f); f["pytorch_model.bin"] = nil }, fs.ErrNotExist,
			"pytorch_model.bin must first be converted to safetensors"},
		"single file corrupt":   {func(f map[string][]byte) { f["model.safetensors"] = []byte("x") }, ErrCorrupt, "model.safetensors: file of 1 bytes"},
		"shards missing":        {func(f map[string][]byte) { delete(f, s1); delete(f, s2) }, fs.ErrNotExist, "2 of the 2 files in model.safetensors.index.json"},
		"shard missing":         {func(f map[string][]byte) { delete(f, s2) }, fs.ErrNotExist, s2},
		"shard corrupt":         {func(f map[string][]byte) { f[s2] = f[s2][:len(f[s2])-1] }, ErrCorrupt, s2 + ": tensors end at byte 4 of the data, want 3: the file is truncated"},
		"index not JSON":        {whole("{"), ErrCorrupt, "not a JSON object"},
		"index null":            {whole("null"), ErrCorrupt, "got null"},
		"index array":           {whole("[]"), ErrCorrupt, "not a JSON object"},
		"index not UTF-8":       {whole("{\"\xff\":1}"), ErrCorrupt, "not valid UTF-8"},
		"no weight_map":         {whole(`{"weightmap":{}}`), ErrCorrupt, "weight_map: want an object"},
		"weight_map other case": {index("weight_map", "Weight_Map"), ErrCorrupt, "weight_map: want an object"},
		"weight_map empty":      {whole(`{"weight_map":{}}`), ErrCorrupt, "at least one tensor"},
		"weight_map array":      {whole(`{"weight_map":[]}`), ErrCorrupt, "weight_map: want an object"},
		"weight_map number":     {whole(`{"weight_map":{"a":1}}`), ErrCorrupt, "weight_map: want an object"},
		"weight_map null":       {whole(`{"weight_map":{"a":null}}`), ErrCorrupt, `tensor "a": got file null`},
		"duplicate tensor":      {index(`"weight_map":{`, `"weight_map":{"a":"`+s1+`",`), ErrCorrupt, `duplicate key "a"`},
		"path up":               {index(s2, "../"+s2), ErrCorrupt, `tensor "b": got file "../` + s2 + `", want the name of a .safetensors file in the same folder`},
		"path down":             {index(s2, "sub/"+s2), ErrCorrupt, "in the same folder"},
		"path absolute":         {index(s2, "/etc/x.safetensors"), ErrCorrupt, "in the same folder"},
		"path of Windows":       {index(s2, `..\\`+s2), ErrCorrupt, "in the same folder"},
		"drive of Windows":      {index(s2, `C:`+s2), ErrCorrupt, "in the same folder"},
		"other file":            {index(s2, "config.json"), ErrCorrupt, "in the same folder"},
		"empty name":            {index(s2, ""), ErrCorrupt, "in the same folder"},
		"tensor missing": {index(`"b":`, `"x":"`+s1+`","b":`), ErrCorrupt,
			`1 tensors of the index are not in their file: "` + s1 + `: x"`},
		"missing and surplus": {index(`"b"`, `"x"`), ErrCorrupt,
			`1 tensors of the index are not in their file: "` + s2 + `: x"; 1 tensors are not in the index under their file: "` + s2 + `: b"`},
		"tensor in two shards": {func(f map[string][]byte) { f[s2] = shardBytes(t, "a", "b") }, ErrCorrupt,
			`1 tensors are not in the index under their file: "` + s2 + `: a"`},
		"shards swapped": {func(f map[string][]byte) { f[s1], f[s2] = f[s2], f[s1] }, ErrCorrupt, "3 tensors of the index are not in their file"},
		"single file is a Git LFS pointer": {func(f map[string][]byte) {
			f["model.safetensors"] = []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
		}, ErrCorrupt, "model.safetensors: a Git LFS pointer, not the file itself"},
		"shard is a Git LFS pointer": {func(f map[string][]byte) {
			f[s2] = []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
		}, ErrCorrupt, s2 + ": a Git LFS pointer, not the file itself"},
		"shard is a page":      {func(f map[string][]byte) { f[s2] = []byte("<!DOCTYPE html><html>") }, ErrCorrupt, s2 + ": an HTML page, not the file itself"},
		"index is a page":      {whole("<html>"), ErrCorrupt, indexFile + ": an HTML page"},
		"file with an escape":  {index(s2, `\u001b[31m`+s2), ErrCorrupt, `file "\x1b[31m` + s2 + `", want the name`},
		"file with a line end": {index(s2, `\n`+s2), ErrCorrupt, `file "\n` + s2 + `", want the name`},
		"many missing": {func(f map[string][]byte) {
			var more strings.Builder
			for i := range 30 {
				fmt.Fprintf(&more, `"n%02d":"%s",`, i, s1)
			}
			index(`"weight_map":{`, `"weight_map":{`+more.String())(f)
		}, ErrCorrupt, `: n19" and 10 more`},
	} {
		t.Run(name, func(t *testing.T) {
			files := sharded(t)
			c.change(files)
			dir := t.TempDir()
			writeFiles(t, dir, files)
			_, err := OpenWeights(dir)
			wantErrorIs(t, err, c.is, c.want)
			_, err = OpenWeightsFS(mapFS(files), ".")
			wantErrorIs(t, err, c.is, c.want)
		})
	}
	if _, err := OpenWeights(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing folder: %v", err)
	}
	_, err := OpenWeightsFS(mapFS(nil), "../x")
	wantErrorIs(t, err, fs.ErrInvalid, "open weights")
}

// TestLongErrorsAreCut: an index may name any number of files.
func TestLongErrorsAreCut(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"weight_map": {"t": "last.safetensors"`)
	for i := range 200_000 {
		fmt.Fprintf(&b, `, "t%d": "f%d.safetensors"`, i, i)
	}
	b.WriteString("}}")
	_, err := OpenWeightsFS(mapFS(map[string][]byte{indexFile: []byte(b.String())}), ".")
	wantErrorIs(t, err, fs.ErrNotExist, "200001 of the 200001 files in "+indexFile)
	wantError(t, err, "and 199981 more")
	if n := len(err.Error()); n > 10_000 {
		t.Errorf("the error has %d bytes", n)
	}
}

// TestIndexWithByteOrderMark: some editors write one.
func TestIndexWithByteOrderMark(t *testing.T) {
	files := sharded(t)
	files[indexFile] = append([]byte("\xef\xbb\xbf"), files[indexFile]...)
	w, err := OpenWeightsFS(mapFS(files), ".")
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if names, err := WeightFiles(mapFS(files)); err != nil || len(names) != 2 {
		t.Errorf("WeightFiles: %v, %v", names, err)
	}
}

// Model hubs' caches hold symbolic links into another folder.
func TestWeightsBehindLinks(t *testing.T) {
	blobs, dir := t.TempDir(), t.TempDir()
	writeFiles(t, blobs, map[string][]byte{"blob": shardBytes(t, "a")})
	if err := os.Symlink(filepath.Join(blobs, "blob"), filepath.Join(dir, "model.safetensors")); err != nil {
		t.Skip(err)
	}
	w, err := OpenWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

func BenchmarkSHA256(b *testing.B) {
	file := filepath.Join(b.TempDir(), "model.safetensors")
	if err := WriteSafetensorsFile(file, []TensorView{F32Tensor("a", []int{16 << 20}, make([]float32, 16<<20))}, nil); err != nil {
		b.Fatal(err)
	}
	w, err := OpenWeights(filepath.Dir(file))
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	b.SetBytes(w.Bytes())
	for b.Loop() {
		w.sha256 = ""
		if _, err := w.SHA256(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNewWeights: of files that are open already, in their order.
func TestNewWeights(t *testing.T) {
	open := func(names ...string) *Safetensors {
		s, err := ParseSafetensors("m.safetensors", shardBytes(t, names...))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	w, err := NewWeights("m", open("b", "c"), open("a"))
	if err != nil {
		t.Fatal(err)
	}
	whole := slices.Concat(shardBytes(t, "b", "c"), shardBytes(t, "a"))
	sum, err := w.SHA256(t.Context(), nil)
	if err != nil || sum != fmt.Sprintf("%x", sha256.Sum256(whole)) || !slices.Equal(w.Names(), []string{"a", "b", "c"}) {
		t.Errorf("SHA256 %s (%v), names %q", sum, err, w.Names())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = w.Tensor("a")
	wantErrorIs(t, err, fs.ErrClosed, `tensor "a"`)
	_, err = NewWeights("m", open("a", "b"), open("b"))
	wantErrorIs(t, err, ErrCorrupt, `m: tensor "b" is in two files`)
}

// TestIndexNames: nothing but names of safetensors files in the folder, and at least one.
func TestIndexNames(t *testing.T) {
	for _, name := range []string{"../x.safetensors", "/x.safetensors", "a/x.safetensors", `a\x.safetensors`, "x.bin", "", ".safetensors/..", "c:x.safetensors", "x\x00.safetensors", strings.Repeat("x", 300) + ".safetensors"} {
		if plainFileName(name) {
			t.Errorf("%q passes", name)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{}", `{"weight_map": {}}`, `{"weight_map": {"a": 1}}`, `{"weight_map": {"a": null}}`} {
		if got, err := WeightFiles(fstest.MapFS{indexFile: {Data: []byte(bad)}}); err == nil {
			t.Errorf("%s gives %v", bad, got)
		}
	}
}
