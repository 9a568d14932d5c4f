//go:build !amd64

package simd

// UseAVXVNNI: there is none.
func UseAVXVNNI(bool) (did bool) { return false }
