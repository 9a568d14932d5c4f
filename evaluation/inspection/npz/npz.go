// Package npz writes arrays in NumPy's .npz format: a zip archive of .npy files,
// which numpy.load reads.
//
// The libraries for it do not fit. github.com/sbinet/npyio (last released in 2022)
// takes a shape from nested slices, gives text the width of its bytes, and does not
// align the data, which then cannot be mapped; github.com/kshedden/gonpy (2021) knows
// neither truth values nor text.
package npz

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"glimpse/internal/listing"
)

// Writer writes an archive. Close must be called.
type Writer struct {
	zip *zip.Writer
	err error
}

// NewWriter starts an archive.
func NewWriter(w io.Writer) *Writer { return &Writer{zip: zip.NewWriter(w)} }

// Float32 adds an array of float32 numbers in C order.
func (w *Writer) Float32(name string, values []float32, shape ...int) {
	w.addArray(name, "<f4", values, len(values), shape)
}

// Int32 adds an array of int32 numbers in C order.
func (w *Writer) Int32(name string, values []int32, shape ...int) {
	w.addArray(name, "<i4", values, len(values), shape)
}

// Bool adds an array of truth values in C order.
func (w *Writer) Bool(name string, values []bool, shape ...int) {
	w.addArray(name, "|b1", values, len(values), shape)
}

// AddText adds a string as an array without dimensions; invalid UTF-8 becomes U+FFFD.
func (w *Writer) AddText(name, text string) {
	runes := []rune(text)
	if len(runes) == 0 { // NumPy has no strings of no width
		runes = []rune{0}
	}
	for i, r := range runes {
		if !utf8.ValidRune(r) {
			runes[i] = utf8.RuneError
		}
	}
	w.addArray(name, "<U"+strconv.Itoa(len(runes)), runes, 1, nil)
}

// Close ends the archive and returns the first error.
func (w *Writer) Close() error {
	if err := w.zip.Close(); w.err == nil {
		w.err = err
	}
	if w.err != nil {
		return fmt.Errorf("write npz: %w", w.err)
	}
	return nil
}

// addArray writes one array. It panics where the shape does not hold the elements: that
// is a mistake of the caller.
func (w *Writer) addArray(name, dtype string, values any, elements int, shape []int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if n != elements {
		panic(fmt.Sprintf("npz: %s: %d elements for shape %v", name, elements, shape))
	}
	if w.err != nil {
		return
	}
	// Stored, as numpy.savez does.
	f, err := w.zip.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
	if err == nil {
		_, err = f.Write(header(dtype, shape))
	}
	if err == nil {
		err = binary.Write(f, binary.LittleEndian, values)
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", name, err)
	}
}

// header is version 1.0 of the format (numpy.lib.format): magic, version, length,
// and a Python dict padded so that the data start at a multiple of 64 bytes.
func header(dtype string, shape []int) []byte {
	tuple := strings.Join(listing.Map(shape, strconv.Itoa), ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	const prefix = 10
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtype, tuple)
	dict += strings.Repeat(" ", 63-(prefix+len(dict))%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), byte(len(dict)>>8))
	return append(out, dict...)
}
