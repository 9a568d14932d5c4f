//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"archive/tar"
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/kernels/cuda"

	"github.com/klauspost/compress/zstd"
)

// tarOf is an archive of files, in the order of their names.
func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// packed is what a tar is compressed to.
func packed(t *testing.T, files []byte, options ...zstd.EOption) *fstest.MapFile {
	t.Helper()
	z, err := zstd.NewWriter(nil, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return &fstest.MapFile{Data: z.EncodeAll(files, nil)}
}

// TestArchives: of a fat binary that several archives have the latest is read, once.
func TestArchives(t *testing.T) {
	first := tarOf(t, map[string]string{"a.fatbin": "first", "b.fatbin": "first", "c.fatbin": "first"})
	before := first
	later := func(files map[string]string) *fstest.MapFile { // of what all before it hold
		data := tarOf(t, files)
		archive := packed(t, data, zstd.WithEncoderDictRaw(0, before))
		before = slices.Concat(data, before)
		return archive
	}
	noise := make([]byte, 4<<10) // that another archive holds
	rng := rand.NewChaCha8([32]byte{})
	rng.Read(noise)
	third, ninth := later(map[string]string{"b.fatbin": "third", "d.fatbin": string(noise)}), later(map[string]string{"c.fatbin": "ninth" + string(noise)})
	if n := len(ninth.Data); n > len(noise)/2 {
		t.Errorf("an archive of what the one before it holds takes %d bytes", n)
	}
	folder := fstest.MapFS{
		"kernels.tar.zst":    packed(t, first),
		"kernels.2.tar.zst":  third,
		"kernels.9.tar.zst":  ninth,
		"kernels.10.tar.zst": later(map[string]string{"c.fatbin": "tenth"}),
		"kernels.sum":        {Data: []byte("no archive")},
	}
	got := make(map[string]string)
	read := func(name string, data []byte) error {
		if _, twice := got[name]; twice {
			t.Errorf("%s is read twice", name)
		}
		got[name] = string(data)
		return nil
	}
	if err := cuda.EachPacked(folder, read); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a": "first", "b": "third", "c": "tenth", "d": string(noise)}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	clear(got)
	data := folder["kernels.9.tar.zst"].Data
	folder["kernels.9.tar.zst"].Data = data[:len(data)/2]
	if err := cuda.EachPacked(folder, read); err == nil || !strings.Contains(err.Error(), "archive of the kernels") {
		t.Errorf("an archive that is cut: error %v", err)
	}
	if err := cuda.EachPacked(fstest.MapFS{}, read); err == nil {
		t.Error("no archive: no error")
	}
}

// TestArchivesAreRecorded: what the program has is what kernels.sum records, in its order.
func TestArchivesAreRecorded(t *testing.T) {
	record, err := os.ReadFile("kernels.sum")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, line := range strings.Split(string(record), "\n") {
		if strings.HasSuffix(line, ".tar.zst") {
			want = append(want, line)
		}
	}
	got, err := cuda.PackedArchives()
	if err != nil || len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
}
