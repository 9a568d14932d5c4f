// Package simd holds the float32 kernels that the CPU backend is built from:
// matrix products, elementwise vector functions and conversions between storage
// types.
//
//	// y [tokens, out] = x [tokens, in] · Wᵀ, W [out, in] stored in bf16
//	simd.GemmNTBF16(simd.Exact, tokens, out, in, 1, x, in, w, in, 0, y, out)
//
// # Levels
//
// Every kernel exists in assembly for AVX-512 (F, BW, DQ, VL), for AVX2 with FMA and
// F16C and for NEON (on arm64; except [Log]), and in portable Go. The level avx512bf16
// adds products of bfloat16 pairs to AVX-512, where rows may be rounded ([Rounding]), and the level amx
// makes these, and where rows may be split, on tiles (AMX-BF16, on Linux). The best level
// that the processor has is chosen when the program starts, but avx512bf16 on AMD's alone, since pairs take longer
// than float32 on Intel's; the environment variable
// GLIMPSE_SIMD (amx, avx512bf16, avx512, avx2, neon or portable) asks for another. [Level] reports the
// choice. The assembly is written by the generators in gen and gen/neon, but for that of tiles; the portable
// code is what it is tested against, next to float64 loops. lab/test_arm64.sh runs
// the tests of NEON on other machines.
//
// # Matrix products
//
// Matrices are row-major with a row stride in elements. The letters of a product
// say which operand is transposed in memory: [GemmNT] multiplies by the rows of b
// (linear layers, queries by keys), [GemmNN] by its columns (probabilities by
// values, gradients of inputs), [GemmTN] transposes a (gradients of weights).
//
// A product is cut into tiles of some rows by one panel of 32 (AVX-512) or 16
// columns (AVX2, NEON). Within a tile, rows of the panel are kept in vector registers and
// elements of a are broadcast. A panel is copied first where its rows are not
// contiguous, or would collide in the cache: the copy [k, columns] is as large as a
// level-1 cache at most, serves all rows of a block, and is where bf16 and f16 are
// widened. Of pairs, a [m, k] is narrowed once for all tasks, and a panel holds two
// depths in one word. Products with few rows (decoding) are dot products of rows instead, or multiply by rows of
// b as they lie: both read b once, in place, and fetch it ahead.
//
// # Quantised weights
//
// [GemmNTBlocks] and [GemmNNBlocks] multiply by rows of blocks ([Blocks]), as GGUF files
// hold them: some elements of a few bits each, with the scales that they share.
//
// Up to 16 rows of a, as in decoding, are quantised themselves: 32 elements become bytes
// and a scale. A block is unpacked to bytes in registers, its products with the bytes of a are
// added up as integers, and every 32 elements' sum is scaled and added in float32. So a
// block is read from memory once, and never written in another form. For more rows than a few AVX512_VNNI unpacks a row of blocks
// once, into the level-1 cache, and adds up two groups of 32 elements side by side: each row in the order that it has by itself. What rounding a to
// bytes costs is half a percent to one of a result's magnitude. The bytes of weights are
// unsigned for the instructions that multiply them: what they are too large by, and
// minima, is subtracted times the sums of a's bytes. The levels from avx512 on use AVX512_VNNI
// where the processor has it, and what avx2 uses otherwise; neon needs ASIMDDP.
//
// More rows are multiplied in the same way where they may be rounded, at avx512 and avx512bf16 with AVX512_VNNI, at avx2 and at
// neon with ASIMDDP: a panel holds the unpacked bytes, four depths of a column in a word, and the integers of a tile of
// rows are added up side by side. AVX2 multiplies bytes of up to 128 so, and all with AVX_VNNI; bytes are signed on
// NEON, and need no offsets. At amx weights become bfloat16 instead, for its tiles.
//
// Blocks of floats of 8 bits (E4M3) are multiplied by rows of float32, without rounding
// either: a float of 8 bits, shifted, is one of half precision that is 2⁸ too small, which
// multiplies the sum of a row once.
//
// Few rows are multiplied by columns of blocks, as probabilities by values, in float32. For more rows elsewhere, and
// where there is no assembly for a format, weights are rounded to bfloat16: a panel at a time, before it is packed. The
// results are as of the products by bfloat16.
//
// # Determinism
//
// A result depends on shapes, data and level only (of quantised weights also on
// these two extensions): not on the alignment of a slice,
// and not on the number of threads. Large products are split into tasks for
// internal/parallel by their shape, dot products by the number of threads as well; a task
// owns a block of c and sums over all of k.
//
// # Slices
//
// Kernels read and write nothing outside the slices they are given, and panic
// before they start if one is too short. Destination and source may be the same
// slice; partly overlapping slices give undefined results.
package simd
