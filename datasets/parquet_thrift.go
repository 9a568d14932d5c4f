package datasets

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of a Parquet file's claims about itself. The library allocates what lists and
// strings claim to hold, so they are compared with what is there before it reads them.
const (
	maxThriftDepth = 32
	maxThriftItems = 1 << 20 // of all lists of one structure
)

var errThrift = errors.New("metadata that claims more than it holds")

// walkThrift finds the end of the structure that data begins with, in Thrift's compact
// protocol: 0 where data ends before it. No list or string in it claims more than data
// holds.
func walkThrift(data []byte) (end int, err error) {
	w := thriftWalk{data: data}
	w.structure(0)
	if w.err != nil {
		return 0, w.err
	}
	return w.at, nil
}

type thriftWalk struct {
	data  []byte
	at    int
	items int
	err   error
}

func (w *thriftWalk) markBroken() { w.err = errThrift }

func (w *thriftWalk) byte() byte {
	if w.err != nil || w.at >= len(w.data) {
		w.markBroken()
		return 0
	}
	w.at++
	return w.data[w.at-1]
}

func (w *thriftWalk) varint() uint64 {
	v, n := binary.Uvarint(w.data[min(w.at, len(w.data)):])
	if n <= 0 {
		w.markBroken()
		return 0
	}
	w.at += n
	return v
}

func (w *thriftWalk) skip(n uint64) {
	if n > uint64(len(w.data)-w.at) {
		w.markBroken()
		return
	}
	w.at += int(n)
}

func (w *thriftWalk) structure(depth int) {
	if depth > maxThriftDepth {
		w.markBroken()
	}
	for w.err == nil {
		header := w.byte()
		if header == 0 {
			return
		}
		if header>>4 == 0 {
			w.varint() // the field's number
		}
		if kind := header & 15; kind > 2 { // of 1 and 2, true and false, there is no more
			w.skipValue(kind, depth)
		}
	}
}

// skipValue passes over one value; booleans are as in lists, a byte each.
func (w *thriftWalk) skipValue(kind byte, depth int) {
	switch kind {
	case 1, 2, 3:
		w.skip(1)
	case 4, 5, 6:
		w.varint()
	case 7:
		w.skip(8)
	case 8:
		w.skip(w.varint())
	case 9, 10:
		w.skipList(depth + 1)
	case 12:
		w.structure(depth + 1)
	default: // 11 are maps, which Parquet has none of
		w.markBroken()
	}
}

func (w *thriftWalk) skipList(depth int) {
	header := w.byte()
	n := uint64(header >> 4)
	if n == 15 {
		n = w.varint()
	}
	// Every item takes a byte at least.
	if depth > maxThriftDepth || n > uint64(len(w.data)-w.at) || n > uint64(maxThriftItems-w.items) {
		w.markBroken()
	}
	for i := uint64(0); i < n && w.err == nil; i++ {
		w.items++
		w.skipValue(header&15, depth)
	}
}

// sumRuns is the number of values in runs of the RLE and bit-packing hybrid, whose values
// have so many bits.
func sumRuns(data []byte, bits int) (values int64, err error) {
	for at := 0; at < len(data); {
		u, n := binary.Uvarint(data[at:])
		if n <= 0 {
			return 0, fmt.Errorf("runs that are cut")
		}
		at += n
		count := int64(u >> 1)
		if count > 1<<31 {
			return 0, fmt.Errorf("a run of %d values", count)
		}
		if u&1 != 0 { // so many groups of 8
			values, at = values+8*count, at+int(count)*bits
		} else {
			values, at = values+count, at+(bits+7)/8
		}
	}
	return values, nil
}
