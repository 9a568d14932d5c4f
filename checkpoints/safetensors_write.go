package checkpoints

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"glimpse/internal/atomicfile"
	"glimpse/kernels"
)

// WriteSafetensors writes the tensors and metadata (may be nil) as a safetensors
// file. The bytes depend on nothing but the arguments: tensors are ordered by
// element size, largest first, and then by name, so that each starts aligned to
// its element size; the header is padded to a multiple of 8 bytes. The order of
// the argument does not matter, and it is not changed.
func WriteSafetensors(w io.Writer, tensors []TensorView, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	header, err := renderHeader(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return writeParts(w, header, tensors)
}

// WriteSafetensorsFile writes the file atomically, replacing what is there.
func WriteSafetensorsFile(path string, tensors []TensorView, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		if err := WriteSafetensors(w, tensors, metadata); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

// renderHeader sorts the tensors into file order and returns the file's bytes
// before the data, the length included.
func renderHeader(tensors []TensorView, metadata map[string]string) ([]byte, error) {
	slices.SortFunc(tensors, func(a, b TensorView) int {
		return cmp.Or(cmp.Compare(elementSize(b), elementSize(a)), cmp.Compare(a.Name, b.Name))
	})
	const start = "\x00\x00\x00\x00\x00\x00\x00\x00{" // the length comes last
	h := append(make([]byte, 0, 1024), start...)
	if metadata != nil {
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return nil, fmt.Errorf("metadata %q: not valid UTF-8", key)
			}
		}
		h = appendJSON(append(h, `"`+metadataKey+`":`...), metadata)
	}
	names := make(map[string]bool, len(tensors))
	offset := 0
	for _, t := range tensors {
		if err := checkWritable(t); err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, fmt.Errorf("tensor %.200q: given twice", t.Name)
		}
		names[t.Name] = true
		if len(h) > len(start) {
			h = append(h, ',')
		}
		h = append(appendJSON(h, t.Name), ':')
		h = appendJSON(h, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{t.storedDType(), append([]int{}, t.Shape...), [2]int{offset, offset + len(t.Data)}})
		offset += len(t.Data)
	}
	h = append(h, '}')
	for len(h)%8 != 0 {
		h = append(h, ' ')
	}
	if n := len(h) - 8; n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, want at most %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(h, uint64(len(h)-8))
	return h, nil
}

func elementSize(t TensorView) int {
	if t.DType > kernels.I32 { // refused by checkWritable, which runs later
		return 0
	}
	return t.DType.Size()
}

func checkWritable(t TensorView) error {
	if !utf8.ValidString(t.Name) || t.Name == metadataKey {
		return fmt.Errorf("tensor %.200q: name not allowed", t.Name)
	}
	if len(t.Shape) > maxRank {
		return fmt.Errorf("tensor %.200q: rank %d, want at most %d", t.Name, len(t.Shape), maxRank)
	}
	size, err := byteSize(t.storedDType(), t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %.200q: %v", t.Name, err) // an argument, so not ErrCorrupt
	}
	if len(t.Data) != size {
		return fmt.Errorf("tensor %.200q: %d bytes of data, want %d for %s %s", t.Name, len(t.Data), size, t.storedDType(), ShapeString(t.Shape))
	}
	return nil
}

// appendJSON appends v, of texts and numbers, which always encode.
func appendJSON(dst []byte, v any) []byte {
	data, _ := encodeJSON(v, "")
	return append(dst, bytes.TrimSuffix(data, []byte("\n"))...)
}

// writeParts writes header and tensors; the buffer joins the small ones.
func writeParts(w io.Writer, header []byte, tensors []TensorView) error {
	b := bufio.NewWriterSize(w, 1<<20)
	b.Write(header) // errors stick until Flush
	for _, t := range tensors {
		b.Write(t.Data)
	}
	return b.Flush()
}
