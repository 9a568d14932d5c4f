//go:build amd64 || arm64

package simd

import "unsafe"

// blockRows is the number of rows that packTransposedBlocks takes at once.
const blockRows = 16

// packTransposedFew packs less than blockRows rows, by way of a copy.
//
//go:noinline
func packTransposedFew(s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k, depth int) {
	var rows [blockRows * maxDepth]float32
	size := k * s.size()
	all := unsafe.Slice((*byte)(unsafe.Pointer(&rows)), blockRows*size)
	for j := range width {
		copy(all[j*size:], unsafe.Slice((*byte)(unsafe.Add(b, j*ldb*s.size())), size))
	}
	packTransposedRows(s, dst, columns, unsafe.Pointer(&rows), k, blockRows, k, depth)
}

// packTransposedRows packs at least one block. Where k or width is no multiple of a
// block's, the last block overlaps the one before and writes the same values again.
func packTransposedRows(s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k, depth int) {
	blocks := k / depth
	for j := 0; j < width; j += blockRows {
		j := min(j, width-blockRows)
		packTransposedBlocks(s, offset(dst, j), columns, unsafe.Add(b, j*ldb*s.size()), ldb, blocks)
		if k > blocks*depth {
			last := k - depth
			packTransposedBlocks(s, offset(dst, last*columns+j), columns,
				unsafe.Add(b, (j*ldb+last)*s.size()), ldb, 1)
		}
	}
}
