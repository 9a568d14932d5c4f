package datasets_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"glimpse/datasets"
)

// parquetBytes is a small file with everything that pages are made of.
func parquetBytes(t testing.TB, codec compress.Codec, version int) []byte {
	type row struct {
		Text    string   `parquet:"text"`
		Source  *string  `parquet:"source,optional,dict"`
		Turns   []turn   `parquet:"turns,list"`
		Number  int64    `parquet:"number,delta"`
		Lengths string   `parquet:"lengths,delta"`
		Flags   []bool   `parquet:"flags"`
		Weight  float64  `parquet:"weight"`
		Tags    []string `parquet:"tags,dict"`
	}
	web := "web"
	rows := []row{
		{Text: "once upon", Source: &web, Number: 1, Lengths: "ab", Flags: []bool{true, false}, Tags: []string{"a", "b"}},
		{Text: "a time", Number: 2, Lengths: "abc"}, {Text: strings.Repeat("long ", 40), Number: 3, Lengths: "", Weight: 1},
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.Compression(codec), parquet.DataPageVersion(version))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readParquet reads all of a file and returns the rows, and the bytes allocated.
func readParquet(t testing.TB, data []byte) (rows int, bytes uint64, err error) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := datasets.OpenSource(path, "auto", datasets.Fields{})
	if err == nil {
		for err == nil {
			if _, err = r.Next(); err == nil {
				rows++
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		r.Close()
	}
	runtime.ReadMemStats(&after)
	return rows, after.TotalAlloc - before.TotalAlloc, err
}

var parquetCodecs = map[string]compress.Codec{
	"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "zstd": &parquet.Zstd, "brotli": &parquet.Brotli, "lz4": &parquet.Lz4Raw,
}

// TestParquetPages: what the check looks at reads as before, in every compression and
// both page formats.
func TestParquetPages(t *testing.T) {
	for name, codec := range parquetCodecs {
		for version := 1; version <= 2; version++ {
			if rows, _, err := readParquet(t, parquetBytes(t, codec, version)); rows != 3 || err != nil {
				t.Errorf("%s, pages of version %d: %d rows, %v", name, version, rows, err)
			}
		}
	}
}

// TestParquetClaims: a small file that claims to hold much is an error before the claim
// is believed.
func TestParquetClaims(t *testing.T) {
	footer := func(n uint32) []byte {
		data := bytes.Clone(parquetBytes(t, &parquet.Snappy, 1))
		binary.LittleEndian.PutUint32(data[len(data)-8:], n)
		return data
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0b} // 3.2e9
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"footer": {footer(1 << 31), "a footer of 2147483648 bytes"},
		"decompressed": {func() []byte {
			var b bytes.Buffer
			type row struct {
				Text string `parquet:"text,plain"`
			}
			if err := parquet.Write(&b, []row{{"once upon a time"}}, parquet.Compression(&parquet.Snappy)); err != nil {
				t.Fatal(err)
			}
			page := snappy.Encode(nil, append([]byte{16, 0, 0, 0}, "once upon a time"...))
			i := bytes.Index(b.Bytes(), page)
			if i < 0 {
				t.Fatal("the page is not there as it was thought to be")
			}
			copy(b.Bytes()[i:], huge) // its length once it is decompressed
			return b.Bytes()
		}(), "3221225471 bytes decompressed"},
		"list": {func() []byte {
			data := parquetBytes(t, &parquet.Snappy, 1)
			n := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
			start := len(data) - 8 - n
			i := bytes.IndexByte(data[start:], 0x19) // the schema, a list
			copy(data[start+i+1:], append([]byte{0xfc}, 0xff, 0xff, 0xff, 0x07))
			return data
		}(), "metadata that claims more than it holds"},
	} {
		t.Run(name, func(t *testing.T) {
			_, allocated, err := readParquet(t, c.data)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
			if allocated > 128<<20 {
				t.Errorf("%d bytes allocated for a file of %d", allocated, len(c.data))
			}
		})
	}
}

// FuzzParquet: any file is rows or an error, within bounds of memory.
func FuzzParquet(f *testing.F) {
	for _, codec := range parquetCodecs {
		f.Add(parquetBytes(f, codec, 1))
		f.Add(parquetBytes(f, codec, 2))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		if _, allocated, _ := readParquet(t, data); allocated > 1<<30 {
			t.Fatalf("%d bytes allocated for a file of %d", allocated, len(data))
		}
	})
}
