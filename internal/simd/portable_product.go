package simd

import "unsafe"

// portableColumns is the width of a panel of the portable kernels.
const portableColumns = 16

// view returns rows × columns elements with the given row stride as a slice, so that
// the portable kernels are bounds-checked.
func view[T any](p unsafe.Pointer, rows, columns, stride int) []T {
	if rows == 0 || columns == 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), (rows-1)*stride+columns)
}

// multiplyPanelPortable sets c [m, width] = alpha·a·panel + beta·c, for a [m, k], or
// [k, m] if transposed, and panel [k, width]. Without reading c if beta is 0.
func multiplyPanelPortable(transposed bool, m, width, k int, alpha float32, aStart *float32, lda int,
	panelStart *float32, stride int, beta float32, cStart *float32, ldc int) {
	panel := view[float32](unsafe.Pointer(panelStart), k, width, stride)
	c := view[float32](unsafe.Pointer(cStart), m, width, ldc)
	rows, columns, rowStep, depthStep := m, k, lda, 1
	if transposed {
		rows, columns, rowStep, depthStep = k, m, 1, lda
	}
	a := view[float32](unsafe.Pointer(aStart), rows, columns, lda)
	for i := 0; i < m; i += 2 {
		second := min(i+1, m-1) // of an odd number of rows, the last one twice
		for j := 0; j < width; j += 4 {
			// Two rows by four columns, as many sums as registers hold.
			x, y, n := a[i*rowStep:], a[second*rowStep:], min(4, width-j)
			var s, t [4]float32
			if n == 4 {
				var s0, s1, s2, s3, t0, t1, t2, t3 float32
				for p := range k {
					b := panel[p*stride+j:][:4:4]
					u, v := x[p*depthStep], y[p*depthStep]
					s0 += u * b[0]
					s1 += u * b[1]
					s2 += u * b[2]
					s3 += u * b[3]
					t0 += v * b[0]
					t1 += v * b[1]
					t2 += v * b[2]
					t3 += v * b[3]
				}
				s, t = [4]float32{s0, s1, s2, s3}, [4]float32{t0, t1, t2, t3}
			} else {
				for p := range k {
					u, v := x[p*depthStep], y[p*depthStep]
					for q, b := range panel[p*stride+j : p*stride+j+n] {
						s[q] += u * b
						t[q] += v * b
					}
				}
			}
			storeScaled(c[i*ldc+j:][:n], s[:], alpha, beta)
			if second > i {
				storeScaled(c[second*ldc+j:][:n], t[:], alpha, beta)
			}
		}
	}
}

// storeScaled sets c[i] = alpha·sums[i] + beta·c[i].
func storeScaled(c, sums []float32, alpha, beta float32) {
	for i := range c {
		if beta == 0 {
			c[i] = alpha * sums[i]
		} else {
			c[i] = alpha*sums[i] + beta*c[i]
		}
	}
}

// multiplyDotsPortable sets c [m, n] = alpha·a [m, k]·b [n, k]ᵀ + beta·c.
func multiplyDotsPortable(s storage, m, n, k int, alpha float32, aStart *float32, lda int,
	bStart unsafe.Pointer, ldb int, beta float32, cStart *float32, ldc int) {
	a := view[float32](unsafe.Pointer(aStart), m, k, lda)
	c := view[float32](unsafe.Pointer(cStart), m, n, ldc)
	var wide [256]float32
	for j := range n {
		var sums [8]float32
		for k0 := 0; k0 < k; k0 += len(wide) {
			part := min(len(wide), k-k0)
			row := widenPortable(s, wide[:part], unsafe.Add(bStart, (j*ldb+k0)*s.size()))
			for i := range m {
				sums[i] += dotPortable(a[i*lda+k0:i*lda+k0+part], row)
			}
		}
		for i := range m {
			storeScaled(c[i*ldc+j:i*ldc+j+1], sums[i:], alpha, beta)
		}
	}
}

// widenPortable returns len(buffer) elements from src on as float32, in buffer if
// they have to be converted.
func widenPortable(s storage, buffer []float32, src unsafe.Pointer) []float32 {
	switch s {
	case bf16:
		widenBF16Portable(buffer, unsafe.Slice((*uint16)(src), len(buffer)))
	case f16:
		widenF16Portable(buffer, unsafe.Slice((*uint16)(src), len(buffer)))
	default:
		return unsafe.Slice((*float32)(src), len(buffer))
	}
	return buffer
}

// packPortable copies b [k, width] to the first columns of dst [k, columns].
func packPortable(s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	panel := unsafe.Slice(dst, k*columns)
	for p := range k {
		row := panel[p*columns:][:width]
		copy(row, widenPortable(s, row, unsafe.Add(b, p*ldb*s.size())))
	}
}

// packTransposedPortable copies b [width, k] to the first columns of dst [k, columns].
func packTransposedPortable(s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	panel := unsafe.Slice(dst, k*columns)
	var buffer [maxDepth]float32
	for j := range width {
		for p, x := range widenPortable(s, buffer[:k], unsafe.Add(b, j*ldb*s.size())) {
			panel[p*columns+j] = x
		}
	}
}
