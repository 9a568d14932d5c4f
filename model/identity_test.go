package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"glimpse/checkpoints"
	"glimpse/kernels/formats"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// sharded stores the weights in two files, with metadata, tensors in another order.
func (f folder) sharded() folder {
	f.t.Helper()
	w, err := checkpoints.OpenWeightsFS(f.fs, ".")
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Close()
	shards, index := [2][]checkpoints.TensorView{}, map[string]string{}
	file := func(i int) string { return fmt.Sprintf("model-%05d-of-00002.safetensors", i+1) }
	for i, name := range w.Names() {
		v, err := w.Tensor(name)
		if err != nil {
			f.t.Fatal(err)
		}
		shards[i%2], index[name] = append(shards[i%2], v), file(i%2)
	}
	for i, tensors := range shards {
		slices.Reverse(tensors)
		var b bytes.Buffer
		if err := checkpoints.WriteSafetensors(&b, tensors, map[string]string{"format": "pt"}); err != nil {
			f.t.Fatal(err)
		}
		f.write(file(i), b.Bytes())
	}
	text, err := json.Marshal(map[string]any{"weight_map": index})
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("model.safetensors.index.json", text)
	delete(f.fs, "model.safetensors")
	return f
}

// identities are the model's SHA256 and that of the files' bytes.
func (f folder) identities() (m *model.Model, weights, files string) {
	f.t.Helper()
	m, err := f.open()
	if err != nil {
		f.t.Fatal(err)
	}
	if weights, err = m.SHA256(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	w, err := checkpoints.OpenWeightsFS(f.fs, ".")
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Close()
	if files, err = w.SHA256(f.t.Context(), nil); err != nil {
		f.t.Fatal(err)
	}
	return m, weights, files
}

// TestIdentity: weights are the same model in whatever files, and another one in another type or
// with another bit.
func TestIdentity(t *testing.T) {
	for _, tied := range []bool{false, true} {
		t.Run(fmt.Sprintf("tied=%t", tied), func(t *testing.T) {
			shape := modeltest.Llama{Tied: tied}
			m, want, files := newFolder(t, shape).identities()
			if known, err := m.KnownAs(t.Context(), files); err != nil || known != files {
				t.Errorf("known as %s (%v), want the hash of its files, %s", known, err, files)
			}
			buffer := checkpoints.F32Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", []int{2}, []float32{1, 0.1})
			alike := map[string]folder{
				"shards":   newFolder(t, shape).sharded(),
				"a buffer": newFolder(t, shape).tensors(same, buffer),
				"a prefix": newFolder(t, shape).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
					v.Name = "_orig_mod." + v.Name
					return &v
				}),
			}
			if tied {
				alike["a stored head"] = newFolder(t, shape).tensors(same, checkpoints.F32Tensor("lm_head.weight", []int{40, 16}, make([]float32, 640)))
			}
			for name, f := range alike {
				m, got, copied := f.identities()
				if got != want {
					t.Errorf("%s: SHA256 %s, want that of the original, %s", name, got, want)
				}
				if copied == files {
					t.Errorf("%s: the files are those of the original", name)
				}
				if known, err := m.KnownAs(t.Context(), files); err != nil || known != want {
					t.Errorf("%s: known as %s (%v), want %s", name, known, err, want)
				}
			}
			const name = "model.layers.1.mlp.up_proj.weight"
			changed := func(change func(v *checkpoints.TensorView)) folder {
				return newFolder(t, shape).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
					if v.Name == name {
						change(&v)
					}
					return &v
				})
			}
			for name, f := range map[string]folder{
				"a bit": changed(func(v *checkpoints.TensorView) { v.Data[len(v.Data)-4] ^= 1 }),
				"the type": changed(func(v *checkpoints.TensorView) {
					bits := make([]uint16, v.Len())
					for i, x := range values(t, *v) {
						bits[i] = formats.F32ToBF16(x)
					}
					*v = checkpoints.BF16Tensor(v.Name, v.Shape, bits)
				}),
				"tensors exchanged": newFolder(t, shape).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
					other := map[string]string{name: "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.gate_proj.weight": name}
					if n, ok := other[v.Name]; ok {
						v.Name = n
					}
					return &v
				}),
			} {
				if _, got, _ := f.identities(); got == want {
					t.Errorf("%s: SHA256 is that of the original", name)
				}
			}
		})
	}
}

// TestIdentityOfClosed: a hash that was not computed before Close is an error, and so is one that is
// cancelled.
func TestIdentityOfClosed(t *testing.T) {
	m, err := newFolder(t, modeltest.Llama{}).open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.SHA256(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	m.Close()
	if _, err := m.SHA256(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSumIsRemembered: weights that have not changed since are not hashed again, others are; nothing that lies in the cache's place is taken for
// a sum, and no cache is no error.
func TestSumIsRemembered(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files have versions on Linux alone")
	}
	dir, cache := t.TempDir(), t.TempDir()
	t.Setenv("GLIMPSE_CACHE", cache)
	write := func(seed uint64, when time.Time) {
		t.Helper()
		folder, err := modeltest.Llama{Seed: seed}.Folder()
		if err != nil {
			t.Fatal(err)
		}
		for name, file := range folder {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, file.Data, 0o600), os.Chtimes(path, when, when)); err != nil {
				t.Fatal(err)
			}
		}
	}
	sum := func() string {
		t.Helper()
		m, err := model.Open(dir, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		sum, err := m.SHA256(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	remembered := func() string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(cache, "weights", "*.sha256"))
		if err != nil || len(files) > 1 {
			t.Fatalf("files %q, %v", files, err)
		}
		return strings.Join(files, "")
	}
	write(1, time.Now())
	first := sum()
	if path := remembered(); path != "" {
		t.Errorf("the sum of files of this moment is remembered as %s", path)
	}
	past := time.Now().Add(-time.Hour)
	write(1, past)
	if got := sum(); got != first {
		t.Errorf("sum %s, want %s", got, first)
	}
	path := remembered()
	other := strings.Repeat("ab", 32)
	for _, c := range []struct{ text, want string }{{other, other}, {other[:10], first}, {strings.Repeat("zz", 32), first}, {"", first}} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := sum(); got != c.want {
			t.Errorf("sum %s where the cache has %q, want %s", got, c.text, c.want)
		}
	}
	os.WriteFile(path, []byte(other), 0o600)
	time.Sleep(20 * time.Millisecond) // times of files have ticks
	write(2, past)
	if got := sum(); got == other || got == first {
		t.Errorf("other weights have the sum %s of those before", got)
	}
	t.Setenv("GLIMPSE_CACHE", os.DevNull)
	write(1, past)
	if got := sum(); got != first {
		t.Errorf("without a cache: sum %s, want %s", got, first)
	}
}
