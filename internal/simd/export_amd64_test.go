package simd

// UseAVXVNNI sets whether level avx2 multiplies bytes by AVX_VNNI, and tells whether it did.
func UseAVXVNNI(use bool) (did bool) {
	did, avxVNNI = avxVNNI, use
	return did
}
