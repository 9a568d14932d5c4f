package simd

import (
	"fmt"
	"slices"
	"testing"

	"glimpse/internal/benchclock"
	"glimpse/internal/parallel"
)

// BenchmarkMachine measures what the floors of lab/results/cpu.md divide by: the rate
// of multiply-adds on operands in the level-1 cache, in float32 and for pairs of
// bfloat16, and of reading memory (256 MiB), with one thread and with all.
func BenchmarkMachine(b *testing.B) {
	const rows, columns, depth, tasks, repeats = 12, maxColumns, 256, 16, 200
	work := 2.0 * rows * columns * depth * tasks * repeats
	for _, threads := range slices.Compact([]int{1, parallel.Threads()}) {
		run := func(name string, tile func(s *scratch, c *float32)) {
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				defer parallel.SetThreads(parallel.SetThreads(threads))
				start := benchclock.Now()
				for b.Loop() {
					parallel.For(tasks, func(int) {
						s := scratches.Get().(*scratch)
						defer scratches.Put(s)
						s.needRows()
						var c [rows * columns]float32
						for range repeats {
							tile(s, &c[0])
						}
					})
				}
				b.ReportMetric(work*float64(b.N)/(benchclock.Now()-start).Seconds()/1e9, "GFLOP/s")
			})
		}
		run("float32", func(s *scratch, c *float32) {
			n := panelColumns(level)
			for j := 0; j < columns; j += n {
				multiplyPanel(level, false, rows, n, depth, 1, s.rows, depth+16, s.panel, n, 0, offset(c, j), columns)
			}
		})
		if RoundsBF16() {
			run("bfloat16", func(s *scratch, c *float32) {
				multiplyPairs(rows, columns, depth/2, 1, s.rows, depth/2+16, s.panel, 0, c, columns)
			})
		}
		b.Run(fmt.Sprintf("memory/threads=%d", threads), func(b *testing.B) {
			defer parallel.SetThreads(parallel.SetThreads(threads))
			x := make([]float32, 64<<20)
			for i := range x {
				x[i] = 1
			}
			var sums [tasks]float32
			start := benchclock.Now()
			for b.Loop() {
				parallel.For(tasks, func(i int) {
					n := len(x) / tasks
					sums[i] = Sum(x[i*n : (i+1)*n])
				})
			}
			b.ReportMetric(4*float64(len(x))*float64(b.N)/(benchclock.Now()-start).Seconds()/1e9, "GB/s")
		})
	}
}
