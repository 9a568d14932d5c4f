package gguf

import (
	"encoding/binary"

	"glimpse/checkpoints"
)

// reader takes little-endian values off a file in memory. After its first error it gives zeros.
type reader struct {
	data []byte
	at   int
	err  error
}

// keepError keeps the first error, with the offset where it was met.
func (r *reader) keepError(format string, args ...any) {
	if r.err == nil {
		r.err = checkpoints.Corruptf("offset %d: "+format, append([]any{r.at}, args...)...)
	}
}

// left is the number of bytes that follow.
func (r *reader) left() int { return len(r.data) - r.at }

// takeBytes is the next n bytes, nil where the file has fewer.
func (r *reader) takeBytes(n uint64, what string) []byte {
	if r.err == nil && n > uint64(r.left()) {
		r.keepError("%s of %d bytes, but only %d follow: the file is truncated", what, n, r.left())
	}
	if r.err != nil {
		return nil
	}
	r.at += int(n)
	return r.data[r.at-int(n) : r.at : r.at]
}

func (r *reader) uint32(what string) uint32 {
	if b := r.takeBytes(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64(what string) uint64 {
	if b := r.takeBytes(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) string(what string) string {
	return string(r.takeBytes(r.uint64("length of "+what), what))
}

// readCount is a number of things that take at least so many bytes each.
func (r *reader) readCount(what string, bytes int) int {
	n := r.uint64("number of " + what)
	if most := r.left() / bytes; n > uint64(most) {
		r.keepError("%d %s, but the %d bytes that follow hold at most %d", n, what, r.left(), most)
		return 0
	}
	return int(n)
}
