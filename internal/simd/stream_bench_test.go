package simd

import (
	"fmt"
	"testing"

	"glimpse/internal/benchclock"
)

// blockSizes are the formats that there is assembly for. What a block holds plays no part
// where it is read by assembly.
var blockSizes = []struct {
	name string
	Blocks
}{
	{"Q4_0", Blocks{Elems: 32, Bytes: 18, Vector: VectorQ4_0}}, {"Q4_1", Blocks{Elems: 32, Bytes: 20, Vector: VectorQ4_1}},
	{"Q5_0", Blocks{Elems: 32, Bytes: 22, Vector: VectorQ5_0}}, {"Q5_1", Blocks{Elems: 32, Bytes: 24, Vector: VectorQ5_1}},
	{"Q8_0", Blocks{Elems: 32, Bytes: 34, Vector: VectorQ8_0}}, {"IQ4_NL", Blocks{Elems: 32, Bytes: 18, Vector: VectorIQ4_NL}},
	{"MXFP4", Blocks{Elems: 32, Bytes: 17, Vector: VectorMXFP4}}, {"Q2_K", Blocks{Elems: 256, Bytes: 84, Vector: VectorQ2_K}},
	{"Q3_K", Blocks{Elems: 256, Bytes: 110, Vector: VectorQ3_K}}, {"Q4_K", Blocks{Elems: 256, Bytes: 144, Vector: VectorQ4_K}},
	{"Q5_K", Blocks{Elems: 256, Bytes: 176, Vector: VectorQ5_K}}, {"Q6_K", Blocks{Elems: 256, Bytes: 210, Vector: VectorQ6_K}},
	{"IQ4_XS", Blocks{Elems: 256, Bytes: 136, Vector: VectorIQ4_XS}},
}

// BenchmarkStream is products of few rows by weights that come from memory, as decoding has them: the rate at which
// 128 MiB of weights are read, to hold against memory of BenchmarkMachine.
func BenchmarkStream(b *testing.B) {
	const size = 128 << 20
	half := make([]uint16, size/2)
	for i := range half {
		half[i] = 0x3f80
	}
	single := make([]float32, size/4)
	for i := range single {
		single[i] = 1
	}
	blocks := make([]byte, size)
	for i := range blocks {
		blocks[i] = byte(i*i>>8)&15 | 0x60
	}
	for _, m := range []int{1, 2, 4, 8, 16} {
		for _, k := range []int{576, 1536, 2048, 8192} {
			run := func(name string, n int, gemm func(x, y []float32)) {
				b.Run(fmt.Sprintf("%s/m=%d/k=%d", name, m, k), func(b *testing.B) {
					x, y := make([]float32, m*k), make([]float32, m*n)
					for i := range x {
						x[i] = float32(i%7) - 3
					}
					start := benchclock.Now()
					for b.Loop() {
						gemm(x, y)
					}
					b.ReportMetric(size*float64(b.N)/(benchclock.Now()-start).Seconds()/1e9, "GB/s")
				})
			}
			run("f32", len(single)/k, func(x, y []float32) { GemmNT(m, len(single)/k, k, 1, x, k, single, k, 0, y, len(single)/k) })
			n := len(half) / k
			run("bf16", n, func(x, y []float32) { GemmNTBF16(Exact, m, n, k, 1, x, k, half, k, 0, y, n) })
			for i := range blockSizes {
				f := &blockSizes[i]
				if k%f.Elems > 0 {
					continue
				}
				n := size / (k / f.Elems * f.Bytes)
				run(f.name, n, func(x, y []float32) { GemmNTBlocks(m, n, k, 1, x, k, &f.Blocks, blocks, Exact, 0, y, n) })
			}
		}
	}
}

// BenchmarkPrompt is products of many rows, as a prompt has them, by weights that come from memory.
func BenchmarkPrompt(b *testing.B) {
	const n, k, matrices = 1536, 1536, 8
	half, blocks := make([]uint16, matrices*n*k), make([]byte, 34*matrices*n*k/32)
	for _, m := range []int{32, 512} {
		x, y := make([]float32, m*k), make([]float32, m*n)
		run := func(name string, gemm func(matrix int)) {
			b.Run(fmt.Sprintf("%s/m=%d", name, m), func(b *testing.B) {
				matrix := 0
				start := benchclock.Now()
				for b.Loop() {
					gemm(matrix)
					matrix = (matrix + 1) % matrices
				}
				b.ReportMetric(2*n*k*float64(m)*float64(b.N)/(benchclock.Now()-start).Seconds()/1e9, "GFLOP/s")
			})
		}
		for how, suffix := range []string{Exact: "", Split: "/split", Rounded: "/rounded"} {
			how := Rounding(how)
			paired := how == Exact || how == Rounded && RoundsBF16() || how == Split && tiles
			if paired {
				run("NT/bf16"+suffix, func(i int) { GemmNTBF16(how, m, n, k, 1, x, k, half[i*n*k:], k, 0, y, n) })
				run("NN/bf16"+suffix, func(i int) { GemmNNBF16(how, m, n, k, 1, x, k, half[i*n*k:], n, 0, y, n) })
			}
			for i := range blockSizes {
				f := &blockSizes[i]
				size := n * k / f.Elems * f.Bytes
				if paired || how == Rounded && f.BytePanels() {
					run("NT/"+f.name+suffix, func(i int) {
						GemmNTBlocks(m, n, k, 1, x, k, &f.Blocks, blocks[i*size:(i+1)*size], how, 0, y, n)
					})
				}
				if !paired {
					continue
				}
				run("NN/"+f.name+suffix, func(i int) {
					GemmNNBlocks(m, n, k, 1, x, k, &f.Blocks, blocks[i*size:(i+1)*size], how, 0, y, n)
				})
			}
		}
	}
}
